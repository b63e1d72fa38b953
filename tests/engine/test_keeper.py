"""The keeper alone: it starts a program cleanly, outlives everything but KILL, and always tells how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_runs import python, wait_for

from cockpit.engine.main import KEEPER


@pytest.fixture
def keep(tmp_path: Path):
    """Start a command under a keeper; gives the keeper's process."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(argv: list[str], cwd: Path | str = "/", env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(tmp_path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        plan = {"argv": argv, "env": env or dict(os.environ), "cwd": str(cwd)}
        assert process.stdin is not None
        process.stdin.write(json.dumps(plan).encode())
        process.stdin.close()
        process.stdin = None
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def status(folder: Path) -> list[str]:
    return (folder / "exit_status").read_text().splitlines()


def test_standard_library_alone_and_short() -> None:
    text = KEEPER.read_text()
    assert "cockpit" not in text.partition('"""')[2].partition('"""')[2]
    assert len(text.splitlines()) < 200


def test_begins_clean(keep, tmp_path: Path) -> None:
    source = (
        "import os, signal, json; print(json.dumps(["
        "[n for n in range(1, 32) if n not in (9, 19) and signal.getsignal(n) == signal.SIG_IGN],"
        "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), os.getcwd(), os.readlink('/proc/self/fd/0'),"
        "sorted(fd for fd in map(int, os.listdir('/proc/self/fd')) if os.path.exists(f'/proc/self/fd/{fd}')),"
        "os.getpgid(0) == os.getpid(), os.environ['MINE']]))"
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        process = keep(python(source), tmp_path, {"MINE": "a\udcff", "PYTHONUTF8": "1"})
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    assert process.wait(20) == 0
    ignored, blocked, cwd, stdin, files, own_group, mine = json.loads((tmp_path / "output.log").read_text())
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25)
    assert set(ignored) <= {13, 25} and blocked == [] and own_group
    assert (cwd, stdin, files, mine) == (str(tmp_path), "/dev/null", [0, 1, 2], "a\udcff")
    assert (tmp_path / "output.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["/no/such"], ["127", "/no/such: No such file or directory"]),
        (["/etc/passwd"], ["126", "/etc/passwd: Permission denied"]),
    ],
)
def test_program_that_cannot_run(keep, tmp_path: Path, argv: list[str], expected: list[str]) -> None:
    assert keep(argv).wait(20) == 0
    assert status(tmp_path) == expected
    assert not (tmp_path / "pids.json").exists()


def test_folder_that_is_gone(keep, tmp_path: Path) -> None:
    assert keep(python("pass"), tmp_path / "gone").wait(20) == 0
    assert status(tmp_path)[0] in ("126", "127")


def test_survives_signals_and_a_training_that_kills_its_group(keep, tmp_path: Path) -> None:
    process = keep(python("import os, signal, time; time.sleep(1); os.killpg(0, signal.SIGKILL)"))
    wait_for((tmp_path / "pids.json").exists, "it has started")
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGQUIT,
        signal.SIGTSTP,
        signal.SIGPIPE,
    ):
        process.send_signal(number)
    assert process.wait(20) == 0
    assert status(tmp_path) == ["137"]


def test_orphans_are_adopted_and_reaped(keep, tmp_path: Path) -> None:
    source = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.5)
        open(sys.argv[1], "w").write(str(os.getppid()))
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(1.2)
"""
    process = keep([*python(source), str(tmp_path / "parent")])
    parent = wait_for(lambda: (tmp_path / "parent").exists() and (tmp_path / "parent").read_text(), "the orphan")
    assert int(parent) == process.pid
    assert process.wait(20) == 0 and status(tmp_path) == ["0"]


def test_output_is_appended_whatever_the_training_does_to_the_file(keep, tmp_path: Path) -> None:
    (tmp_path / "output.log").write_bytes(b"before\n")
    keep(python("import os; os.write(2, b'two\\n'); os.ftruncate(1, 0); os.write(1, b'three\\n')")).wait(20)
    assert (tmp_path / "output.log").read_bytes() == b"three\n"
