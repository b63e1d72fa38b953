"""The process of a hot restart: it waits, takes over as if it had been started just then, or ends without a trace."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bare import run_bare
from support.lives import Life
from support.outcome import TRAINERS

from cockpit.probe import lives

FACTS = str(TRAINERS / "facts.py")
Make = Callable[..., Life]
LONG = functools.partial(pytest.param, marks=pytest.mark.long)
COLD = ["it sets MINE first"]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Start a life; what is left of it is ended with the test."""
    made: list[Life] = []

    def begin(argv: list[str], env: dict[str, str] | None = None, **more: Any) -> Life:
        made.append(Life(tmp_path, [sys.executable, *argv], env, **more))
        return made[-1]

    yield begin
    for life in made:
        life.close()


def script(tmp_path: Path, text: str) -> list[str]:
    """A script that imports no torch, as one that is ``cold`` may."""
    path = tmp_path / "small.py"
    path.write_text(text)
    return [str(path)]


def facts_in(text: str) -> dict[str, Any]:
    return json.loads(next(line for line in text.splitlines() if line.startswith("FACTS "))[6:])


# ---- with torch: what the script finds is what it would find ----


@pytest.mark.parametrize(
    ("words", "env"),
    [
        LONG([FACTS, "a", "--b"], {"METHOD": "fork", "STATUS": "3"}, id="script"),
        LONG(
            ["-O", "-Xutf8", "-Wonce", "-m", "tests.trainers.facts", "x"],
            {"METHOD": "spawn", "FAIL": "1", "PYTHONHASHSEED": "5"},
            id="module",
        ),
    ],
)
def test_a_script_cannot_tell(make: Make, tmp_path: Path, words: list[str], env: dict[str, str]) -> None:
    life = make(words, env)
    ready = life.ready()
    assert ready["torch"] is True and ready["private_dirty_kb"] > 0 and life.output == ""
    waiting = life.pids()["training"]
    assert "libtorch" in Path(f"/proc/{waiting}/maps").read_text()
    assert life.go()
    life.leave()
    status = life.ended()
    bare = run_bare([sys.executable, *words], tmp_path, env)
    ours, theirs = facts_in(life.output), facts_in(bare.text)
    extra = set(ours.pop("modules")) ^ set(theirs.pop("modules"))
    assert extra <= {"sitecustomize", "faulthandler"}  # as in any run; in the place of the second none can lie
    assert {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]} == {}
    # the rest of its words, traceback and all, and its end
    assert [line for line in life.output.splitlines() if not line.startswith("FACTS ")] == [
        line for line in bare.text.splitlines() if not line.startswith("FACTS ")
    ]
    assert status == bare.status and "AT EXIT" in life.output
    assert life.pids()["training"] == waiting
    assert lives.has(str(life.folder), lives.STEPPED) is ("FAIL" not in env)


# ---- without: who takes over, and who does not ----


@pytest.mark.long
def test_waits_without_doing_anything_and_ends_with_a_training_that_ends(make: Make, tmp_path: Path) -> None:
    life = make(script(tmp_path, "print('never')"), cold=COLD)
    pid = life.ready()["pid"]
    assert life.ready()["torch"] is False

    def used() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    before = used()
    time.sleep(3)
    assert used() == before
    life.leave()
    assert life.ended() == 0 and life.output == ""
    assert not life.go() and lives.current(str(tmp_path)) == str(tmp_path)


def test_a_sitecustomize_of_the_users_that_fails_lets_it_begin_no_sooner(make: Make, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import os\ndel os\nraise ValueError('theirs')\n")
    life = make(script(tmp_path, "print('never')"), {"PYTHONPATH": str(theirs)}, cold=COLD)
    life.ready()
    time.sleep(0.5)
    life.leave()
    assert life.ended() == 0 and "never" not in life.output


def test_what_is_given_up_ends_and_nobody_can_hand_over_to_it(make: Make, tmp_path: Path) -> None:
    life = make(script(tmp_path, "print('never')"), cold=COLD, back={})
    life.ready()
    assert lives.give_up(str(life.folder), "not wanted") and not life.go()
    assert life.ended() == 0 and life.output == ""


@pytest.mark.long
def test_takes_over_only_once_the_old_one_is_gone(make: Make, tmp_path: Path) -> None:
    life = make(script(tmp_path, "print('begun', open('/proc/self/oom_score_adj').read().strip())"), cold=COLD)
    ready = life.ready()
    assert Path(f"/proc/{ready['pid']}/oom_score_adj").read_text().strip() == "1000", "it goes before the training"
    assert life.go() and lives.current(str(tmp_path)) == str(life.folder)
    time.sleep(2.5)
    assert life.output == ""
    life.leave()
    ours = Path("/proc/self/oom_score_adj").read_text().strip()
    assert life.ended() == 0 and life.output == f"begun {ours}\n"


@pytest.mark.long
def test_an_old_one_that_cannot_end_is_ended(make: Make, tmp_path: Path) -> None:
    life = make(script(tmp_path, "print('begun')"), cold=COLD, leave_s=0.2)
    life.ready()
    life.go()
    assert life.ended() == 0 and life.output == "begun\n"
    assert life.old.wait(5) == -15


@pytest.mark.long
def test_what_imports_print_comes_when_the_script_begins(make: Make, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('imported', flush=True)\n")
    life = make(script(tmp_path, "import torch; print('begun')"))
    life.ready()
    assert life.output == "" and life.words == "imported\n"
    life.go()
    life.leave()
    assert life.ended() == 0 and life.output == "imported\nbegun\n"
    # a module beside the script hides another, here as there; it is no torch, and the probe says so
    assert (tmp_path / "probe_error").exists()


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('not here')",
        pytest.param("import os; os._exit(9)", marks=pytest.mark.long),
        pytest.param("raise SystemExit(0)", marks=pytest.mark.long),
    ],
)
def test_imports_that_fail_end_it_before_its_turn(make: Make, tmp_path: Path, text: str) -> None:
    (tmp_path / "torch.py").write_text(text)
    life = make(script(tmp_path, "print('never')"), back={})
    assert life.ended() == (9 if "os" in text else 70)
    assert life.output == "" and not life.go() and ("not here" in life.words) is ("not here" in text)


# ---- the way back, by the keeper alone ----

TELLS = "import os, sys, time; print('with', os.environ.get('MINE'), flush=True)\n"
FAILS = "sys.exit(int(os.environ.get('MINE', '0')))"


@pytest.mark.parametrize(
    ("more", "marks", "words", "status"),
    [
        pytest.param(FAILS, (), ["with 9", "with None"], 0, id="fails"),
        LONG(f"os.kill(os.getpid(), 9) if 'MINE' in os.environ else {FAILS}", (), ["with 9", "with None"], 0),
        LONG(FAILS, (lives.STEPPED,), ["with 9"], 9, id="has-stepped"),
        LONG(FAILS, (lives.STOP,), ["with 9"], 9, id="stopped"),
        LONG("os.kill(os.getpid(), 15)", (), ["with 9"], 143, id="told-to-end"),
        LONG("", (), ["with 9"], 0, id="through"),
    ],
)
def test_back_to_what_was(
    make: Make, tmp_path: Path, more: str, marks: tuple[str, ...], words: list[str], status: int
) -> None:
    life = make(script(tmp_path, TELLS + more), {"MINE": "9"}, cold=COLD, back={"MINE": None})
    life.ready()
    first = life.pids()
    life.go()
    for name in marks:
        lives.mark(str(life.folder), name)
    life.leave()
    assert life.ended() == status and life.output.splitlines() == words
    assert (life.pids().get("back") is not None) is (len(words) > 1)
    assert (life.pids()["training"] == first["training"]) is (len(words) == 1)


@pytest.mark.long
def test_an_instant_end_with_epochs_left_goes_back(make: Make, tmp_path: Path) -> None:
    life = make(script(tmp_path, TELLS), {"MINE": "9"}, cold=COLD, back={"MINE": None})
    life.ready()
    life.go(epochs_left=4)
    life.leave()
    assert life.ended() == 0 and life.output.splitlines() == ["with 9", "with None"]


@pytest.mark.parametrize("stopped", [LONG(False), True])
def test_killed_while_it_waits_for_the_old_one_to_leave(make: Make, tmp_path: Path, stopped: bool) -> None:
    life = make(script(tmp_path, TELLS), {"MINE": "9"}, cold=COLD, back={"MINE": None})
    pid = life.ready()["pid"]
    life.go()
    os.kill(pid, 9)
    time.sleep(0.5)
    assert life.output == ""  # two never train at once
    if stopped:
        lives.mark(str(life.folder), lives.STOP)
    life.leave()
    assert life.ended() == (137 if stopped else 0)
    assert life.output.splitlines() == ([] if stopped else ["with None"])


@pytest.mark.long
def test_an_environment_in_which_nothing_starts(make: Make, tmp_path: Path) -> None:
    life = make(script(tmp_path, TELLS), {"PYTHONHOME": "/no/such/folder"}, cold=COLD, back={"PYTHONHOME": None})
    assert life.ended() == 1 and not life.go() and life.output == "" and "PYTHONHOME" in life.words
