"""What torch finds when it is imported: told by each training, and where one that waits leaves it alone."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bare import clean_env
from support.lives import Life
from support.outcome import REPO

from cockpit.engine.launch import environment
from cockpit.probe import at_import

Make = Callable[..., Life]
LONG = functools.partial(pytest.param, marks=pytest.mark.long)

HERE = {
    "torch": "/site/torch/__init__.py",
    "processors": "0-1",
    "memory nodes": "0",
    "limits": ["Max processes 100 100"],
    "priority": ["0", "0", "0"],
    "libraries": ["libjemalloc.so.2"],
}


ELSEWHERE = "torch was found elsewhere before"


@pytest.mark.parametrize(
    ("told", "asked", "why"),
    [
        ({}, (), []),
        ({"processors": "0"}, (), ["torch found other processors before"]),
        (
            {"limits": [], "priority": ["5", "0", "0"]},
            (),
            ["torch found other limits before", "torch found other priority before"],
        ),
        ({"libraries": ["libgomp-a.so.1"]}, (), ["torch found libgomp-a.so.1 loaded before"]),
        ({"libraries": ["libtcmalloc.so"]}, ("env LD_PRELOAD",), []),  # taken away: as it was wanted
        ({"libraries": []}, (), []),  # a restart has preloaded one
        ({"torch": "/else/torch/__init__.py"}, (), [ELSEWHERE]),
        ({"torch": "/else/torch/__init__.py"}, ("env PYTHONPATH",), []),
        (
            {"torch": "/else/torch/__init__.py"},
            ("env LD_PRELOAD",),
            [ELSEWHERE],
        ),
        ({"torch": None}, (), []),
    ],
)
def test_where_torch_must_be_left_to_the_script(told: dict[str, Any], asked: tuple[str, ...], why: list[str]) -> None:
    assert at_import.unlike({**HERE, **told}, HERE, asked) == why


def test_what_nobody_could_read_is_no_difference() -> None:
    assert at_import.unlike({}, HERE, ()) == [] and at_import.unlike({"torch": None}, HERE, ()) == []
    assert at_import.found({}, None) == {"torch": None}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Start a life; what is left of it is ended with the test."""
    made: list[Life] = []

    def begin(argv: list[str], **more: Any) -> Life:
        made.append(Life(tmp_path, [sys.executable, *argv], **more))
        return made[-1]

    yield begin
    for life in made:
        life.close()


FIRST = {
    "": "",
    "torch found other processors before": "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "torch found other limits before": "import resource; resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 22))",
    "torch found other priority before": "os.nice(3)",
    "torch found libgomp.so loaded before": "import mmap; f = open('libgomp.so', 'r+'); m = mmap.mmap(f.fileno(), 0)",
    "torch found other dlopen flags before": "sys.setdlopenflags(os.RTLD_GLOBAL | os.RTLD_NOW)",
    ELSEWHERE: "sys.path.insert(0, 'else')",
}
"""What a script may do before it imports torch, by what is said of it."""


@pytest.mark.parametrize("why", ["torch found other processors before", *(LONG(each) for each in FIRST)])
def test_torch_is_imported_when_the_script_has_done_what_comes_before(make: Make, tmp_path: Path, why: str) -> None:
    """Two processes of a script: what the first one finds decides whether the second imports torch beforehand."""
    if "processors" in why and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: nothing can be taken away")
    (tmp_path / "else").mkdir()
    for folder in (tmp_path, tmp_path / "else"):
        (folder / "torch.py").write_text("import os, sys; print('STANDS', sorted(os.sched_getaffinity(0)))\n")
    (tmp_path / "libgomp.so").write_text("a")
    path = tmp_path / "small.py"
    tell = "import json, torch; w = sys.modules['sitecustomize']._waiter"
    path.write_text(
        f"import os, sys\n{FIRST[why]}\n{tell}\n"
        "at_import = sys.modules['_training_cockpit.probe.at_import']\n"
        "print('FOUND', json.dumps(at_import.found(w.standing, torch.__file__)))\n"
    )
    data = tmp_path / "bare"
    data.mkdir()
    env = environment(clean_env(), data, data / "no.sock")
    words = [sys.executable, str(path)]
    told = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    life = make([str(path)], cwd=tmp_path, found=json.loads(told.splitlines()[-1].partition(" ")[2]))
    ready = life.ready()
    assert (ready["torch"], ready["why"]) == (not why, [why] if why else [])
    assert ("STANDS" in life.words) is not why
    life.go()
    life.leave()
    assert life.ended() == 0 and life.output == told


def test_what_a_script_sets_before_it_imports_torch_is_known() -> None:
    text = (
        "import os; os.environ['OMP_NUM_THREADS'] = '3'; os.environ['SAME'] = '1'; del os.environ['GONE']\n"
        "from cockpit.probe.at_import import greeting; print(greeting({'env': ['SAME', 'NO']}, os.environ, None, None))"
    )
    env = {"GONE": "1", "SAME": "1", "PATH": os.environ["PATH"], "PYTHONPATH": str(REPO), "LC_ALL": "C"}
    told = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True).stdout
    assert told == "{'set_early': ['GONE', 'OMP_NUM_THREADS'], 'env': {'SAME': '1', 'NO': None}, 'found': {}}\n"
