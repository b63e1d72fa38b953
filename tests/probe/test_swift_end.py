"""Python's last search for rubbish is spared where it would find nothing to do, and never where it would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_engine import finish, launch, probe_env, script

ENDS = """
import atexit, gc, os, sys
sys.path.insert(0, {root!r})
from cockpit.probe.handoff.swift_end import spare_search
atexit.register(lambda: print("spared" if spare_search() else "searched", gc.get_freeze_count() > 0, flush=True))
class Thing:
    pass
thing = Thing()
thing.itself = thing
number = os.open('kept.txt', os.O_CREAT | os.O_WRONLY)  # no file object: it has a finaliser itself
{body}
"""
KEPT = {
    "an open file": "thing.file = open('kept.txt', 'w'); thing.file.write('kept')",
    "a finaliser": """
class Last(Thing):
    def __del__(self, write=os.write, number=number): write(number, b'kept')
thing.last = Last()""",
    "a finaliser that is inherited": "import zipfile; thing.zip = zipfile.ZipFile('some.zip', 'w')",
    "a suspended generator": """
def waits(write=os.write, number=number):
    try:
        yield
    finally:
        write(number, b'kept')
thing.waits = waits()
next(thing.waits)""",
    "what was put in the place of a stream": "thing.out = sys.stdout = open('kept.txt', 'w'); print('kept')\n"
    "sys.stdout = sys.__stdout__",
    "a library that cannot be seen into": """
import types
sys.modules['writer._native'] = types.ModuleType('writer._native')
sys.modules['writer._native'].__file__ = '/lib/writer/_native.cpython-311-x86_64-linux-gnu.so'""",
}
ROOT = str(Path(__file__).parents[2])


def ended(body: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ENDS.format(root=ROOT, body=body)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_whatever_has_something_to_do_when_it_goes_does_it(body: str, tmp_path: Path) -> None:
    assert ended(body, tmp_path) == "searched False"
    if "kept.txt" in body:
        assert (tmp_path / "kept.txt").read_text().strip() == "kept"


def test_what_holds_memory_alone_is_spared_the_search(tmp_path: Path) -> None:
    assert ended("import io; thing.text = io.StringIO('x'); print('', end='', flush=True)", tmp_path) == "spared True"


BODY = """
    import atexit, gc, os, sys
    atexit.register(lambda: print("spared" if gc.get_freeze_count() else "searched", flush=True))
    import numpy, torch
    from torch.utils.data import DataLoader
    import cockpit

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model.itself = [model]
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(torch.ones(12, 4), batch_size=4, num_workers=1, persistent_workers=True)
    run = cockpit.session(model=model, optimizer=optimizer)
    life = os.path.join(os.environ["COCKPIT_RUN"], "life-2")
    for epoch in run.epochs({epochs}):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        if {hands_over}:
            # as its engine asks for it
            sys.modules["_training_cockpit.probe.handoff.session"].LIVE[0].receive(
                {{"m": "handoff", "id": "r1", "life": life}})
"""


@pytest.mark.parametrize(
    ("epochs", "hands_over", "told"), [(9, True, "spared"), pytest.param(1, False, "searched", marks=pytest.mark.long)]
)
def test_a_training_that_hands_over_is_spared_it_and_no_other_is(
    tmp_path: Path, epochs: int, hands_over: bool, told: str
) -> None:
    (tmp_path / "life-2").mkdir()
    body = BODY.format(epochs=epochs, hands_over=hands_over)
    training = launch(script(tmp_path / "src", body), probe_env(tmp_path, {}))
    output, errors = finish(training)
    assert training.returncode == 0 and told in output, output + errors
