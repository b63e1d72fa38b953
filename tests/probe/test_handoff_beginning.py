"""What an unseeded script draws before its loop is drawn again in a later process of the run, and by nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_engine import bare_env, probe_env
from support.lives import Life

HELPER = "import random, numpy; print('helper', random.random(), numpy.random.rand())"
DRAWS = f"""
import subprocess, sys
import random
first = random.random()
import numpy
import numpy.random as generators
print("draws", first, generators.rand(), random.gauss(0, 1), generators.normal(), random.sample(range(50), 5))
sys.stdout.flush()
subprocess.run([sys.executable, "-c", {HELPER!r}])
"""
"""A helper of the script's own draws for itself: two of them must not do the same work."""
OPTS_IN = """
import os
os.makedirs(os.environ["COCKPIT_RUN"] + "/handoff", exist_ok=True)
sys.modules["sitecustomize"]._ours("handoff.beginning").write_down(os.environ["COCKPIT_RUN"] + "/handoff")
"""
TORCH = "\nimport torch\nprint('draws', torch.rand(2).tolist(), torch.initial_seed(), flush=True)\n"


def lines(text, kind):
    return [line for line in text.splitlines() if line.startswith(kind)]


def first_of(run_dir: Path, code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=probe_env(run_dir, {}), capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def later_of(run_dir: Path, code: str, **more: object) -> str:
    """As a keeper starts it, once the process before has made way."""
    life = Life(run_dir, [sys.executable, "-c", code], **more)
    try:
        life.ready()
        assert life.go()
        life.leave()
        assert life.ended() == 0, life.output
        return life.output
    finally:
        life.close()


def test_an_unseeded_script_begins_as_it_did(tmp_path):
    first = first_of(tmp_path, DRAWS + OPTS_IN)
    again = later_of(tmp_path, DRAWS, cold=["a test"])
    assert lines(first, "draws") == lines(again, "draws")
    assert len({*lines(first, "helper"), *lines(again, "helper")}) == 2


SAYS = "import sys; print('says', sys.modules['sitecustomize']._ours('handoff.beginning').drawn_anew(), flush=True)"


def test_who_draws_anew_says_so_and_nobody_else(tmp_path):
    """A process that another program has started, be it a shell, a launcher or the script: it may be any of it."""
    first_of(tmp_path, DRAWS + OPTS_IN)
    by_another = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS!r}])"
    of_its_own, behind = lines(later_of(tmp_path, f"{SAYS}; {by_another}", cold=["a test"]), "says")
    assert of_its_own == "says []" and "was drawn anew" in behind


OWN = {
    "raises": "def __getattr__(name): raise RuntimeError(name)",
    "gives anything": "def __getattr__(name): return lambda *words: print('called', name)",
    "its own state": "def getstate(): print('called')\nsetstate = getstate",
    "a copy of Python's": "class Random:\n    def getstate(self, *words): print('called')\n"
    "_inst = Random()\ngetstate = setstate = _inst.getstate",
    "another kind of module": "import sys\nclass Kind(type(sys)):\n    @property\n"
    "    def __dict__(self): print('called')\nsys.modules[__name__].__class__ = Kind",
}


@pytest.mark.parametrize("own", OWN)
def test_no_code_runs_of_what_is_only_called_as_pythons_own(tmp_path, own):
    (tmp_path / "src" / "numpy").mkdir(parents=True)
    (tmp_path / "src" / "numpy" / "__init__.py").touch()
    for name in ("random.py", "numpy/random.py"):
        (tmp_path / "src" / name).write_text(OWN[own])
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'src')!r}); import random, numpy.random; print('there')"
    assert first_of(tmp_path, code) == "there\n"


@pytest.mark.long
@pytest.mark.parametrize("cold", [["a test"], None])
@pytest.mark.parametrize("order", ["torch last", "torch first"])
def test_torch_begins_as_it_did_be_it_there_before_or_not(tmp_path, cold, order):
    code = DRAWS + TORCH if order == "torch last" else "import sys" + TORCH + DRAWS
    first = first_of(tmp_path, code + OPTS_IN)
    again = later_of(tmp_path, code, cold=cold)
    assert lines(first, "draws") == lines(again, "draws") and len(lines(first, "draws")) == 2
    assert len({*lines(first, "helper"), *lines(again, "helper")}) == 2


@pytest.mark.long
def test_the_first_process_draws_what_it_would(tmp_path):
    """Each time another, as bare ones do; and what is seeded is what it was."""
    texts = [first_of(tmp_path / str(number), "import sys" + TORCH + DRAWS) for number in range(3)]
    assert len(set(texts)) == 3
    seeded = "import random, numpy, torch; random.seed(1); numpy.random.seed(2); torch.manual_seed(3)\n" + DRAWS + TORCH
    bare = subprocess.run([sys.executable, "-c", seeded], env=bare_env(), capture_output=True, text=True)
    assert lines(first_of(tmp_path / "s", seeded), "draws") == lines(bare.stdout, "draws") != []


@pytest.mark.long
@pytest.mark.parametrize("words", ["", "{", "[1]", "{'random': 3, 'numpy.random': (), 'torch': 'x'}"])
def test_a_note_that_cannot_be_read_costs_nothing(tmp_path, words):
    (tmp_path / "handoff").mkdir()
    (tmp_path / "handoff" / "began").write_text(words)
    assert len(lines(later_of(tmp_path, "import sys" + TORCH + DRAWS), "draws")) == 2


@pytest.mark.long
def test_what_is_noted_takes_no_import_forward(tmp_path):
    code = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    bare = subprocess.run([sys.executable, "-c", code], env=bare_env(), capture_output=True, text=True)
    ours = {"sitecustomize"}
    assert set(json.loads(first_of(tmp_path, code))) - set(json.loads(bare.stdout)) <= ours
