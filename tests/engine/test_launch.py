"""The argument vector and environment of a training, from the user's words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cockpit.engine.__main__ import put_package_on_path
from cockpit.engine.launch import INJECT, PACKAGE, bare_environment, command_for, environment, interpreter
from cockpit.model.errors import StartError, UsageError


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "package").mkdir()
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__main__.py").write_text("")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path


def test_script_gets_the_active_environments_python(here: Path) -> None:
    python = str(here / "env" / "bin" / "python")
    assert interpreter({"VIRTUAL_ENV": str(here / "env"), "CONDA_PREFIX": "/elsewhere"}) == python
    assert interpreter({"CONDA_PREFIX": str(here / "env")}) == python
    assert interpreter({"VIRTUAL_ENV": "/gone"}) == sys.executable
    argv, script = command_for(["train.py", "--lr", "1"], True, {}, here)
    assert argv == (sys.executable, "train.py", "--lr", "1") and script == "train.py"
    assert command_for(["whole"], True, {}, here)[1] == "whole"


def test_command_is_found_as_a_shell_would_and_not_changed(here: Path) -> None:
    environ = {"PATH": f"/nowhere:{here}"}
    argv, script = command_for(["run.sh", "-x", "--", "a"], False, environ, here)
    assert argv == (str(here / "run.sh"), "-x", "--", "a") and script == "run.sh"
    assert command_for(["./run.sh"], False, {}, here)[0] == (str(here / "run.sh"),)
    assert command_for(["run.sh", "a/b/fit.py", "2"], False, environ, here)[1] == "a/b/fit.py"
    assert command_for(["run.sh", "-m", "pkg.fit"], False, environ, here)[1] == "fit"


@pytest.mark.parametrize(
    ("words", "is_script", "code", "told"),
    [
        (["gone.py"], True, 127, "gone.py: no such file in"),
        (["package"], True, 126, "a folder without __main__.py"),
        (["no-such-program"], False, 127, "no-such-program: command not found"),
        (["./gone"], False, 127, "./gone: no such file"),
        (["./train.py"], False, 126, "./train.py is not executable"),
        (["./package"], False, 126, "./package is a folder"),
        ([], True, 125, "nothing to run"),
    ],
)
def test_what_cannot_start_says_so(here: Path, words: list[str], is_script: bool, code: int, told: str) -> None:
    with pytest.raises((StartError, UsageError)) as caught:
        command_for(words, is_script, {"PATH": str(here)}, here)
    assert caught.value.code == code
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("before", "after"), [({}, []), ({"PYTHONPATH": ""}, []), ({"PYTHONPATH": "a:b"}, ["a", "b"])])
def test_environment_gains_only_what_the_probe_needs(before: dict[str, str], after: list[str]) -> None:
    env = environment({"HOME": "/h", **before}, Path("/data"), Path("/tmp/s.sock"))
    assert env.pop("PYTHONPATH").split(":") == [str(INJECT), *after]
    assert env == {
        "HOME": "/h",
        "PYTHONUNBUFFERED": "1",
        "COCKPIT_RUN": "/data",
        "COCKPIT_SOCKET": "/tmp/s.sock",
        "COCKPIT_PACKAGE": str(PACKAGE),
    }


def test_our_own_processes_bear_no_mark() -> None:
    env = bare_environment({"COCKPIT_RUN": "/outer", "COCKPIT_SOCKET": "s", "COCKPIT_PACKAGE": "p", "A": "b"})
    assert env == {"A": "b"}


def test_engine_finds_this_package_after_the_standard_library_and_before_any_other() -> None:
    path = ["/usr/lib/python3.11", "/usr/lib/python3.11/lib-dynload", "/env/lib/site-packages"]
    put_package_on_path(path, "/checkout")
    assert path == ["/usr/lib/python3.11", "/usr/lib/python3.11/lib-dynload", "/checkout", "/env/lib/site-packages"]
    bare = ["/usr/lib/python3.11"]
    put_package_on_path(bare, "/checkout")
    assert bare == ["/usr/lib/python3.11", "/checkout"]
