"""The keeper alone: it starts a program cleanly, outlives everything but KILL, and always tells how it ended."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_runs import python, wait_for

from cockpit.engine import blank, keeper
from cockpit.engine.main import KEEPER


@pytest.fixture
def keep(tmp_path: Path):
    """Start a command under a keeper; gives the keeper's process."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        argv: list[str],
        cwd: Path | str = "/",
        env: dict[str, str] | None = None,
        window: tuple[float, ...] | None = None,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(tmp_path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        plan = {"argv": argv, "env": env or dict(os.environ), "cwd": str(cwd), "window": window}
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
    assert len(text.splitlines()) < 235


@pytest.mark.parametrize(
    "leaves", ["sleep 600 &", pytest.param('(trap "" TERM; while :; do sleep 0.2; done) &', marks=pytest.mark.long)]
)
def test_what_a_failed_process_leaves_behind_has_ended_before_the_one_of_before_runs(
    tmp_path: Path, leaves: str
) -> None:
    """As a shell that is killed leaves its training."""
    (tmp_path / "go").write_text('{"handoff": "whole"}')
    plan = {
        "argv": ["/bin/sh", "-c", f"{leaves} echo $! > pid; exit 3"],
        "back": {"argv": ["/bin/sh", "-c", 'kill -0 "$(cat pid)" && echo beside || echo alone'], "cwd": str(tmp_path)},
        "old": {"pid": 0, "started_ticks": None},
    }
    whole = {**plan, "back": {**plan["back"], "env": dict(os.environ)}, "env": dict(os.environ), "cwd": str(tmp_path)}
    command = [sys.executable, "-I", "-S", str(KEEPER), str(tmp_path)]
    subprocess.run(command, input=json.dumps(whole).encode(), timeout=60, start_new_session=True, check=True)
    assert status(tmp_path) == ["0"] and (tmp_path / "output.log").read_text().splitlines()[-1] == "alone"


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
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGRTMIN,
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


# ---- a terminal for the training's input, where it would have one ----

ASKS = """
import os, sys, signal
signal.alarm(25)
print(os.isatty(0), os.popen("stty size", "r").read().split(), tuple(os.get_terminal_size(0)))
def told(ask):
    try:
        return repr(ask())
    except BaseException as error:
        return type(error).__name__
import code, getpass, readline, subprocess, termios, tty
for ask in (input, sys.stdin.read, getpass.getpass, code.interact, lambda: open("/dev/tty"), lambda: os.write(0, b"x")):
    print(told(ask), file=sys.stderr)
for command in ([sys.executable, "-c", "breakpoint(); pass"], [sys.executable], ["cat"], ["sh", "-c", "read line"]):
    print("ended", subprocess.run(command, stderr=subprocess.DEVNULL).returncode)
modes = termios.tcgetattr(0)
{change}
print(told(lambda: os.read(0, 10)), told(lambda: os.read(0, 10)))
termios.tcsetattr(0, termios.TCSAFLUSH, modes)
print(told(input), sorted(map(int, os.listdir("/proc/self/fd")))[:3])
"""
CHANGES = {
    "as it is": ("pass", "b'' b''"),
    "each key": ("tty.setraw(0)", r"b'\x04' b'\x04'"),
    "lines": ("mine = termios.tcgetattr(0); mine[3] |= termios.ICANON; termios.tcsetattr(0, 2, mine)", "b'' b''"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_input_with_a_size_from_which_nothing_ever_comes(keep, tmp_path: Path, change: str) -> None:
    """Whatever asks, and in whatever modes, is told that there is no more: nothing stops a training unseen."""
    make, read = CHANGES[change]
    process = keep(python(ASKS.replace("{change}", make)), window=(31, 97, 0.5))
    assert process.wait(30) == 0
    said = (tmp_path / "output.log").read_text()
    assert status(tmp_path) == ["0"], said
    assert "True ['31', '97'] (97, 31)" in said
    words = [line.split()[-1] for line in said.splitlines() if line.endswith(("Error", "''", "None"))]
    assert words[:6] == ["EOFError", "''", "EOFError", "None", "OSError", "OSError"]
    assert [line for line in said.splitlines() if "ended" in line] == ["ended 1", "ended 0", "ended 0", "ended 1"]
    assert f"{read}\nEOFError [0, 1, 2]" in said


KEYS = """
import os, select, sys, time, tty
tty.setcbreak(0)
began = time.monotonic()
while time.monotonic() - began < 4.0:
    sum(range(100_000))
    if select.select([0], [], [], 0)[0]:
        sys.exit("a key: %r" % os.read(0, 1))
print("no key")
"""


WRITES = """
import os, select, signal, termios, time
signal.alarm(25)
modes = termios.tcgetattr(0)
modes[3] |= termios.ICANON
termios.tcsetattr(0, termios.TCSANOW, modes)
time.sleep(3.0)
found = []
while select.select([0], [], [], 0)[0]:
    found.append(os.read(0, 10))
print(len(found))
with open(os.ttyname(0), "w") as file:
    for _ in range(300):
        file.write("x" * 100)
print("written")
"""


def test_one_end_at_a_time_and_what_is_written_to_it_is_read(keep, tmp_path: Path) -> None:
    process = keep(python(WRITES), window=(24, 80, 0.5))
    assert process.wait(30) == 0 and (tmp_path / "output.log").read_text() == "1\nwritten\n"


def test_who_trains_and_looks_for_a_key_now_and_then_sees_none(keep, tmp_path: Path) -> None:
    """Many loops let `q` stop or save: one that nobody pressed would end them."""
    process = keep(python(KEYS), window=(24, 80, 0.5))
    assert process.wait(30) == 0 and (tmp_path / "output.log").read_text() == "no key\n"


def test_the_inputs_end_reaches_nobody_when_the_keeper_is_killed(keep, tmp_path: Path) -> None:
    """It is no controlling terminal: the training and a session that it has begun go on, and get no signal."""
    source = """
import os, signal, sys, time
for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGTTIN, signal.SIGTTOU):
    signal.signal(number, lambda number, frame: print("signal", number, flush=True))
if os.fork() == 0:
    os.setsid()
print("begun", flush=True)
while os.isatty(0):
    time.sleep(0.02)
time.sleep(0.2)
print("goes on", repr(sys.stdin.read()), flush=True)
"""
    process = keep(python(source), window=(24, 80))
    said = tmp_path / "output.log"
    wait_for(lambda: said.exists() and said.read_text().count("begun") == 2, "both have begun")
    process.kill()
    process.wait()
    wait_for(lambda: said.read_text().count("goes on ''") == 2, "both go on")
    assert "signal" not in said.read_text()


def test_no_terminal_to_be_had_is_no_reason_not_to_start(keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.ENOSPC, "no more")

    with monkeypatch.context() as patched:
        patched.setattr(blank.os, "openpty", none_left)
        assert blank.blank_terminal(24, 80) is None
    alone = tmp_path / "alone.py"
    alone.write_bytes(KEEPER.read_bytes())
    monkeypatch.setattr(f"{__name__}.KEEPER", alone)
    process = keep(python("import os; print(os.readlink('/proc/self/fd/0'))"), window=(24, 80))
    assert process.wait(20) == 0
    assert (tmp_path / "output.log").read_text() == "/dev/null\n"


def test_orphans_do_not_keep_the_end_waiting_under_a_terminal(keep, tmp_path: Path) -> None:
    process = keep(python("import os, time\nif os.fork() == 0:\n    time.sleep(9)\nos._exit(7)"), window=(24, 80))
    assert process.wait(5) == 0 and status(tmp_path) == ["7"]


@pytest.mark.parametrize(("leave_s", "seconds"), [(30.0, 40.0), (300.0, 310.0)])
def test_who_has_handed_over_and_does_not_end_has_its_time_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave_s: float, seconds: float
) -> None:
    slept: list[float] = []
    ended: list[float] = []
    monkeypatch.setattr(keeper, "started", lambda pid: None if ended else 7)
    monkeypatch.setattr(keeper, "end", lambda pid: ended.append(sum(slept)))
    monkeypatch.setattr(keeper.time, "sleep", slept.append)
    assert keeper.wait_until_gone(str(tmp_path), 4711, 7, leave_s)
    assert ended == [pytest.approx(seconds)]
