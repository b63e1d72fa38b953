"""Scripts that a new process cannot begin again: a good training goes on, or the run says that it is over and why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of, run_bare
from support.outcome import REPO, TRAINERS
from support.under import ask, detached, status, wait_until

pytestmark = pytest.mark.long
SCRIPT = TRAINERS / "begins_once.py"
READY = "life-2/ready.json"


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if " loss " in line or line.startswith("FINAL ")]


def whole(tmp_path: Path, text: str, env: dict[str, str], begun: int = 1) -> None:
    """Not one loss is another than in one process that nobody touched."""
    folder = tmp_path / "bare"
    folder.mkdir()
    bare = run_bare(command_of(SCRIPT), folder, {**env, "HELD": "", "PAUSE_S": "0", "RESULTS": str(folder / "results")})
    assert losses(text) == losses(bare.text) and len(losses(text)) == 6 * int(env.get("EPOCHS", "24")) + 1
    assert text.count("BEGINS") == begun


def env_of(tmp_path: Path, way: str = "none", **more: str) -> dict[str, str]:
    return {"WAY": way, "HELD": str(tmp_path / "go on"), "PYTHONPATH": f"{REPO}:{TRAINERS}", **more}


def held(data: Path, scratch: Path) -> None:
    """It is in its second epoch, as far as that goes."""
    wait_until((data / "pids.json").exists, "the start", 120, 0.05)
    wait_until(lambda: (status(scratch)["step"] or 0) >= 11, "the second epoch", 120)


def outcome(scratch: Path) -> dict[str, Any]:
    found: dict[str, Any] = wait_until(
        lambda: (entry := status(scratch)["ledger"][-1])["outcome"] and entry, "what comes of it", 120
    )
    return found


def ended(data: Path, code: str = "0") -> str:
    wait_until((data / "exit_status").exists, "the end", 120)
    assert (data / "exit_status").read_text().strip() == code
    return (data / "output.log").read_text()


def test_what_was_rebuilt_meanwhile_is_not_handed_over(state_dir: Path, tmp_path: Path) -> None:
    env = env_of(tmp_path, "group", EPOCHS="12", PAUSE_S="0.02")
    with detached(command_of(SCRIPT), state_dir, env=env) as data:
        held(data, state_dir)
        assert ask(state_dir, "restart", "--env", "MINE=7").returncode == 0
        wait_until((data / READY).exists, "the new process", 120)
        Path(env["HELD"]).touch()
        entry = outcome(state_dir)
        sentence = "optimizer has 2 parameter groups now and had 1 when cockpit.session was called"
        assert entry["outcome"] == "refused" and sentence in entry["reason"], entry
        again = ask(state_dir, "restart", "--env", "MINE=7")
        assert again.returncode == 1 and sentence in again.stderr, again.stderr
        text = ended(data)
    whole(tmp_path, text, env)


def test_a_crash_goes_on_from_the_newest_that_can_be_restored(state_dir: Path, tmp_path: Path) -> None:
    """What was rebuilt is in no hand-off: the one before stays, and what that costs is told."""
    env = env_of(tmp_path, "group", EPOCHS="400", PAUSE_S="0.02")
    with detached(command_of(SCRIPT), state_dir, options=("--handoff-every", "1"), env=env) as data:
        held(data, state_dir)
        Path(env["HELD"]).touch()
        wait_until(lambda: (status(state_dir)["epoch"] or 0) >= 4, "the fifth epoch", 120)
        assert "2 parameter groups now" in status(state_dir)["handoff"]["failed"]
        assert [each.name for each in (data / "handoff").glob("[0-9]*")] == ["1"]


def test_a_beginning_that_fails_twice_ends_the_run_and_says_so(state_dir: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    env = env_of(tmp_path, "folder", RESULTS=str(results), PAUSE_S="0.05")
    with detached(command_of(SCRIPT), state_dir, env=env) as data:
        held(data, state_dir)
        assert ask(state_dir, "restart", "--env", "MINE=7").returncode == 0
        wait_until((data / READY).exists, "the new process", 120)
        Path(env["HELD"]).touch()
        wait_until((data / "life-2" / "exit_status").exists, "the end", 120)
        # it is tried again by itself, and fails again
        found = wait_until(lambda: (said := status(state_dir))["state"] == "ended" and said, "it is given up", 200)
        entry = next(entry for entry in found["ledger"] if "env MINE" in entry["change"])
        assert entry["outcome"] == "ended" and "FileExistsError" in entry["reason"], entry
        assert "hand-off 1 is left: cockpit restart it goes on from it" in entry["reason"]
        assert found["crash"]["restart"] is True and found["crash"]["lost_steps"] == 0, found["crash"]
        results.rmdir()
        assert ask(state_dir, "restart").returncode == 0  # in the environment of whoever asks
        newest = max(data.glob("life-*"), key=lambda life: int(life.name.rpartition("-")[2]))
        wait_until((newest / "exit_status").exists, "the end", 120)
        text = (data / "output.log").read_text()
    assert (newest / "exit_status").read_text().strip() == "0"
    whole(tmp_path, text, env, begun=text.count("FileExistsError: ") + 2)


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda path: path.write_text(path.read_text() + "\nfor epoch in (\n"), "SyntaxError: '(' was never closed"),
        (Path.unlink, "begins_once.py is gone"),
        (lambda path: path.with_name("toy.py").unlink(), "imports toy, and "),
    ],
)
def test_a_script_that_is_half_edited_is_left_alone(
    state_dir: Path, tmp_path: Path, edit: Any, words: str, moment: str
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("begins_once.py", "toy.py"):
        shutil.copy(TRAINERS / name, mine / name)
    env = {**env_of(tmp_path), "PYTHONPATH": str(REPO)}
    with detached(command_of(mine / "begins_once.py"), state_dir, env=env) as data:
        held(data, state_dir)
        if moment == "before":
            edit(mine / "begins_once.py")
        assert ask(state_dir, "restart", "--env", "MINE=7").returncode == 0
        if moment == "meanwhile":
            wait_until((data / READY).exists, "the new process", 120)
            edit(mine / "begins_once.py")
            Path(env["HELD"]).touch()  # whether it has looked by now or not
        entry = outcome(state_dir)
        assert entry["outcome"] == "refused", entry
        assert words in entry["reason"] or "has just been changed" in entry["reason"], entry
        Path(env["HELD"]).touch()
        text = ended(data)
    whole(tmp_path, text, env)
