"""A script whose files change while its training runs: what could not begin again is named, and nothing else is."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_engine import ROOT

from cockpit.probe import lives
from cockpit.probe.begins_again import CLOCKS_S, LOOKED, Script, changed_since_looked

LONG = functools.partial(pytest.param, marks=pytest.mark.long)
TREE = {
    "train.py": "import helper\nfrom parts import net\n",
    "helper.py": "from parts.net import N\n",
    "parts/__init__.py": "",
    "parts/net.py": "from . import size\nfrom .size import S\nN = S\n",
    "parts/size.py": "S = 3\n",
    "lazily.py": "",
}
TELLS = """
import json, os, sys
sys.path.insert(0, os.environ["ROOT"])
from cockpit.probe import begins_again
import lazily
print(json.dumps(begins_again.of_this_process()))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    for name, text in TREE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + (TELLS if name == "train.py" else ""))
        os.utime(path, (1e9, 1e9))
    return folder


@pytest.fixture
def life(tmp_path: Path) -> Path:
    folder = tmp_path / "life-2"
    folder.mkdir()
    return folder


def told(source: Path, *words: str) -> dict[str, object]:
    """What a process that runs it says of itself."""
    command = [sys.executable, "-W", "error", *(words or (str(source / "train.py"),))]
    env = {**os.environ, "ROOT": str(ROOT)}
    found: dict[str, object] = json.loads(subprocess.check_output(command, cwd=source, env=env, text=True))
    return found


def write(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


def take(*names: str):
    return lambda folder: [(folder / name).unlink() for name in names]


def move(name: str, to: str):
    def moved(folder: Path) -> None:
        (folder / to).parent.mkdir(exist_ok=True)
        (folder / name).rename(folder / to)

    return moved


def both(*changes):
    return lambda folder: [change(folder) for change in changes]


SLY = """
import importlib.util, sys
from types import ModuleType
class Eager(ModuleType):
    @property
    def __dict__(self): raise SystemExit("was asked for all it has")
class Sly:
    def __getattribute__(self, name): raise SystemExit("was asked for " + name)
spec = importlib.util.find_spec("lazily")
spec.loader = importlib.util.LazyLoader(spec.loader)
lazy = sys.modules["lazily"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lazy)
sys.modules["eager"], sys.modules["sly"] = Eager("eager"), Sly()
import mixed
sys.modules["mixed"].__class__ = Eager
def __getattr__(name): raise SystemExit("was asked for " + name)
del __spec__
"""


def test_a_look_runs_nothing_of_the_scripts(source: Path) -> None:
    """Modules that import what they have as soon as somebody looks at them, and things that are none at all."""
    (source / "lazily.py").write_text("raise SystemExit('was run')")
    (source / "mixed.py").touch()
    (source / "train.py").write_text(SLY + TELLS.replace("import lazily\n", ""))
    found = told(source)["files"]
    assert isinstance(found, dict) and {Path(each).name for each in found} == {"train.py", "mixed.py"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (write("train.py", "import torch\nfor epoch in (\n"), "train.py, line 2: SyntaxError: '(' was never closed"),
        LONG(write("train.py", "def f():\nreturn 1\n"), "train.py, line 2: IndentationError: "),
        LONG(write("train.py", "return 1\n"), "train.py, line 1: SyntaxError: 'return' outside function"),
        LONG(write("train.py", "x = '\0'\n"), "train.py: "),
        (write("parts/net.py", "N = = 1\n"), "net.py, line 1: SyntaxError"),
        (take("train.py"), "train.py is gone"),
        LONG(move("train.py", "trains.py"), "train.py is gone"),
        LONG(take("helper.py"), "train.py, line 1 imports helper, and "),
        (take("parts/size.py"), "net.py, line 1 imports parts.size, and "),
        LONG(take(*(name for name in TREE if name.startswith("parts/"))), "train.py, line 2 imports parts.net, and "),
        LONG(write("train.py", "import helper, parts.net\nraise SystemExit\n"), None),
        LONG(write("train.py", 's = "\\d"  # warned of, no error\n'), None),
        LONG(move("helper.py", "helper/__init__.py"), None),
        (move("parts/size.py", "parts/size/__init__.py"), None),
        (both(take("helper.py"), write("train.py", "try:\n    import helper\nexcept ImportError:\n    pass\n")), None),
        (both(move("helper.py", "helps.py"), write("train.py", "import helps\n")), None),
        LONG(take("lazily.py"), "train.py, line 7 imports lazily"),
        LONG(write("another.py", "N = = 1\n"), None),
        LONG(write("train.py", "# coding: latin-1\nx = '\xe9'\n"), None),
    ],
)
def test_what_has_become_of_the_script(source: Path, life: Path, change, words: str | None) -> None:
    script = Script(str(life), told(source))
    assert script.why_not() is None and changed_since_looked(str(life)) is None
    change(source)
    why = script.why_not()
    assert (words in (why or "")) if words else why is None, why
    assert script.why_not() == why, "as long as it lies there so"
    late = changed_since_looked(str(life))
    assert (late is None) == (words is None), "who hands over trusts only what was read"


def test_what_is_looked_at_too_late_is_not_handed_over_to(source: Path, life: Path) -> None:
    assert changed_since_looked(str(life)) is None, "an older one has not looked"
    script = Script(str(life), told(source))
    assert script.why_not() is None
    write("helper.py", "x = (\n")(source)
    assert "helper.py has just been changed" in (changed_since_looked(str(life)) or "")
    write("helper.py", TREE["helper.py"] + "x = 1\n")(source)
    assert script.why_not() is None and changed_since_looked(str(life)) is None


def test_whatever_was_broken_before_and_another_python_are_nobodys_business(source: Path, life: Path) -> None:
    facts = told(source)
    write("helper.py", "x = (\n")(source)
    os.utime(source / "helper.py", (1e9, 1e9))
    assert Script(str(life), facts).why_not() is None, "it was read by the process that has begun"
    write("helper.py", "x = (\n")(source)
    assert "helper.py" in (Script(str(life), facts).why_not() or "")
    assert Script(str(life), {**facts, "python": [2, 7]}).why_not() is None


@pytest.mark.parametrize("words", [LONG(("-m", "train")), LONG(("train.py",)), ("-m", "parts.run")])
def test_the_script_is_told_however_it_was_started(source: Path, words: tuple[str, ...]) -> None:
    write("parts/run.py", (source / "train.py").read_text())(source)
    facts = told(source, *words)
    main = source / ("parts/run.py" if "parts.run" in words else "train.py")
    assert facts["main"] == str(main) and next(iter(facts["files"])) == str(main)
    names = {Path(path).name for path in facts["files"]} - {main.name}
    assert names == {"helper.py", "__init__.py", "net.py", "size.py", "lazily.py"}, "its own, and no library"
    assert 0 <= time.time() - CLOCKS_S - facts["since_s"] < 300


def test_what_cannot_be_written_down_is_not_trusted(source: Path, life: Path) -> None:
    script = Script(str(life), told(source))
    assert script.why_not() is None and list(lives.read(str(life), LOOKED)["files"])
    write("helper.py", "y = 1\n")(source)
    life.joinpath("%s.%d" % (LOOKED, os.getpid())).mkdir()
    assert script.why_not() is None and changed_since_looked(str(life)) is not None
