"""The verbs on real runs: a scripted training as the command, real engines, real signals, no torch."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.bare import clean_env
from support.outcome import REPO
from support.under import COCKPIT, ask, detached, peek, run_under, status, wait_until

from cockpit.cli.runs import recorded_state, revive
from cockpit.config.setup import read_setup
from cockpit.engine.processes import boot_id
from cockpit.engine.rundir import new_rundir, runs_folder, safe_sockets, write_json
from cockpit.engine.runs import look


def trainer(*options: str) -> list[str]:
    """``--speed`` plays it fast; its first windows are over within seconds."""
    return [sys.executable, "-m", "cockpit.engine.scripted", *options]


ENDLESS = trainer("--epochs", "100000", "--steps", "100", "--speed", "4")
PATH = {"PYTHONPATH": str(REPO)}


def test_a_run_to_its_end_reports_and_passes_the_status_on(state_dir: Path) -> None:
    done = run_under(trainer("--epochs", "2", "--steps", "30", "--speed", "4", "--exit", "3"), state_dir, env=PATH)
    assert done.status == 3 and done.report is not None
    assert done.report["state"] == "ended" and done.report["exit_status"] == 3
    assert done.report["summary"]["changes"] == 0
    again = ask(state_dir, "report", "it", "--json")
    assert json.loads(again.stdout) == done.report, "a fresh fold of the journal gives the same"
    text = ask(state_dir, "report")
    assert text.returncode == 0 and "ended with status 3" in text.stdout and "nothing was changed" in text.stdout
    logs = ask(state_dir, "logs")
    assert logs.stdout.encode() == done.output and "loss" in logs.stdout


def test_headless_talks_on_stderr_and_reports_on_stdout(state_dir: Path) -> None:
    words = [*COCKPIT, "run", "--headless", "--state-dir", str(state_dir), "--at", "epoch:1", "num_workers=2", "--"]
    words += trainer("--epochs", "3", "--steps", "40", "--speed", "4", "--exit", "7")
    done = subprocess.run(words, cwd=REPO, env=clean_env(PATH), capture_output=True, text=True, timeout=60)
    assert done.returncode == 7
    assert done.stdout.startswith("scripted-") and "num_workers 0→2" in done.stdout
    assert "started; its output:" in done.stderr and "num_workers 0→2: in force, measuring" in done.stderr
    assert "| epoch 2" in done.stderr, "a training that failed shows its last lines"


def test_quiet_says_nothing(state_dir: Path) -> None:
    words = [*COCKPIT, "run", "--headless", "--quiet", "--json", "--state-dir", str(state_dir), "--"]
    done = subprocess.run(
        [*words, *trainer("--epochs", "1", "--steps", "5", "--exit", "1")],
        cwd=REPO,
        env=clean_env(PATH),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1 and done.stderr == b"" and json.loads(done.stdout)["exit_status"] == 1


def test_a_change_is_asked_watched_undone_saved_and_loaded(state_dir: Path) -> None:
    with detached(ENDLESS, state_dir, env=PATH):
        wait_until(lambda: peek(state_dir)["baseline_samples_per_s"], "a baseline")
        waited = ask(state_dir, "set", "it", "num_workers=2", "--now", "--wait")
        line = json.loads(waited.stdout)
        assert waited.returncode == 0 and line["outcome"] == "kept" and line["change"]["num_workers"] == [0, 2]
        assert line["after"]["samples_per_s"] > 1.5 * line["before"]["samples_per_s"]
        assert line["knobs"] == {"num_workers": {"asked": 2, "in_force": 2, "reason": None, "note": None}}
        assert "cockpit: num_workers 0→2: in force, measuring\n" in waited.stderr, "each move is said on the way"
        assert status(state_dir)["knobs"]["num_workers"]["in_force"] == 2

        file = state_dir / "cockpit.toml"
        saved = ask(state_dir, "save", "--to", str(file))
        assert saved.returncode == 0 and saved.stdout == f"{file}\n" and f"--config {file}" in saved.stderr
        assert read_setup(file).wishes.knobs == {"num_workers": 2}
        file.write_text("mine\n")
        refused = ask(state_dir, "save", "--to", str(file))
        assert refused.returncode == 1 and "--force" in refused.stderr and file.read_text() == "mine\n"
        assert ask(state_dir, "save", "--to", str(file), "--force").returncode == 0

        page = ask(state_dir, "status").stdout
        assert "num_workers         2 (script 0) kept" in page
        (row,) = json.loads(ask(state_dir, "ls", "--json").stdout)
        assert (row["run"], row["state"]) == ("it", "running") and row["samples_per_s"] > 0
        assert "it" in ask(state_dir, "ls").stdout.splitlines()[1]

        assert ask(state_dir, "undo").returncode == 0
        wait_until(lambda: peek(state_dir)["knobs"]["num_workers"]["in_force"] == 0, "the undo")
        assert status(state_dir)["ledger"][0]["outcome"] == "reverted"
        redone = ask(state_dir, "redo", "--wait")
        again = json.loads(redone.stdout)
        assert redone.returncode == 0 and (again["origin"], again["outcome"]) == ("redo", "kept")
        assert status(state_dir)["knobs"]["num_workers"]["in_force"] == 2
        wait_until(lambda: ask(state_dir, "baseline").returncode == 0, "a window under the present settings")
        assert status(state_dir)["baseline_samples_per_s"] > 1.5 * line["before"]["samples_per_s"]

        stopped = ask(state_dir, "stop")
        assert stopped.returncode == 0 and "ended with status" in stopped.stdout, stopped.stderr
    after = ask(state_dir, "save", "--to", str(state_dir / "late.toml"))
    assert after.returncode == 0 and read_setup(state_dir / "late.toml").wishes.knobs == {"num_workers": 2}
    for verb, words in (("attach", ()), ("stop", ()), ("set", ("num_workers=1",)), ("undo", ())):
        gone = ask(state_dir, verb, *words)
        assert gone.returncode == 1 and "has ended" in gone.stderr and gone.stderr.count("\n") == 1
    assert json.loads(ask(state_dir, "status", "--json").stdout)["state"] == "ended"


def test_a_saved_setup_is_in_force_from_the_start(state_dir: Path) -> None:
    file = state_dir / "cockpit.toml"
    file.write_text('schema = 1\n[setup]\nnum_workers = 64\nnum_worker = 2\n[machine]\ncpus = 128\ntorch = "1.0"\n')
    options = ("--config", str(file), "--set", "pin_memory=off")
    done = run_under(trainer("--epochs", "2", "--steps", "20", "--speed", "4"), state_dir, options, env=PATH)
    assert done.status == 0 and done.report is not None
    assert done.report["knobs"]["num_workers"]["asked"] == 64
    talk = done.talk if isinstance(done.talk, str) else str(done.talk)
    assert "num_workers 64 is applied, but this job has only" in talk
    assert f"measured with torch 1.0, this is {metadata.version('torch')}" in talk
    assert "unknown knob 'num_worker' was not applied; did you mean 'num_workers'" in talk


def test_waiting_for_a_change_that_is_refused_or_never_comes(state_dir: Path) -> None:
    refusing = trainer(
        "--epochs", "1", "--steps", "900", "--speed", "2", "--refuse", "pin_memory=there is no accelerator"
    )
    with detached(refusing, state_dir, env=PATH):
        wait_until(lambda: peek(state_dir)["step"], "a step")
        refused = ask(state_dir, "set", "pin_memory=on", "--now", "--wait")
        assert refused.returncode == 1
        if refused.stdout:
            assert "no accelerator" in json.loads(refused.stdout)["reason"]
        else:
            assert "no accelerator" in refused.stderr
        late = ask(state_dir, "set", "num_workers=2", "--wait", timeout_s=90)
        assert late.returncode == 1, "no second epoch comes"
        assert json.loads(late.stdout)["outcome"] == "refused"


def test_a_queued_change_can_be_withdrawn_while_somebody_waits_for_it(state_dir: Path) -> None:
    slow = trainer("--epochs", "2", "--steps", "100000")
    with detached(slow, state_dir, env=PATH):
        wait_until(lambda: peek(state_dir)["step"], "a step")
        words = [*COCKPIT, "set", "--state-dir", str(state_dir), "num_workers=2", "--wait"]
        waiting = subprocess.Popen(words, cwd=REPO, env=clean_env(PATH), stdout=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: peek(state_dir)["ledger"], "the change in the ledger")
            assert ask(state_dir, "drop").returncode == 0
            out, _ = waiting.communicate(timeout=30)
        finally:
            waiting.kill()
            waiting.wait()
        assert waiting.returncode == 1 and json.loads(out)["state"] == "dropped"


def start_headless(state_dir: Path, command: list[str]) -> subprocess.Popen[str]:
    words = [*COCKPIT, "run", "--headless", "--state-dir", str(state_dir), "--name", "it", "--", *command]
    return subprocess.Popen(
        words,
        cwd=REPO,
        env=clean_env(PATH),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_state(state_dir: Path) -> dict[str, Any] | None:
    answer = ask(state_dir, "status", "it", "--json")
    return json.loads(answer.stdout) if answer.returncode == 0 else None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_a_soft_stop_and_the_report_still_comes(state_dir: Path, number: signal.Signals) -> None:
    running = start_headless(state_dir, [*ENDLESS, "--save-s", "0.5"])
    try:
        wait_until(lambda: (told := run_state(state_dir)) and told["step"], "a step")
        running.send_signal(number)
        out, err = running.communicate(timeout=40)
    finally:
        running.kill()
        running.wait()
    assert "stopping softly" in err and "ended with status" in out
    told = run_state(state_dir)
    assert told is not None and told["state"] == "ended" and running.returncode == told["exit_status"]


def test_a_schedulers_signal_to_whoever_was_started_is_heard_by_the_training(state_dir: Path, tmp_path: Path) -> None:
    """SLURM tells the process that it started, some minutes before the end; the training's handler saves."""
    script = tmp_path / "saves.py"
    script.write_text(
        "import os, signal, time\n"
        "def save(number, frame): os.write(1, b'saved at %d\\n' % number); number == signal.SIGUSR2 and os._exit(7)\n"
        "signal.signal(signal.SIGUSR1, save); signal.signal(signal.SIGUSR2, save); os.write(1, b'ready\\n')\n"
        "while True: time.sleep(0.05)\n"
    )
    output = state_dir / "runs" / "it" / "output.log"
    running = start_headless(state_dir, [sys.executable, str(script)])
    try:
        wait_until(lambda: output.exists() and b"ready" in output.read_bytes(), "the script's handlers")
        wait_until(lambda: signal.SIGUSR1 in caught_by(running.pid), "the front's handlers")
        running.send_signal(signal.SIGUSR1)
        wait_until(lambda: b"saved at 10" in output.read_bytes(), "the first save")
        pids = json.loads((output.parent / "pids.json").read_text())
        engine = engine_of(output.parent)
        for pid in (running.pid, engine, pids["keeper"], pids["training"]):
            os.kill(pid, signal.SIGUSR1)
        time.sleep(1.5)  # a second one would have come by now
        assert output.read_bytes().count(b"saved at 10") == 2, "told to every process, it is heard once"
        running.send_signal(signal.SIGUSR2)
        running.communicate(timeout=40)
    finally:
        running.kill()
        running.wait()
    assert b"saved at 12" in output.read_bytes() and running.returncode == 7, "as the script itself ended"


def engine_of(run: Path) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if b"engine/__main__.py" in words and bytes(run) in words:
                return int(process.name)
    raise AssertionError("no engine")


def caught_by(pid: int) -> set[int]:
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return {number for number in range(1, 65) if int(mask.split()[1], 16) >> (number - 1) & 1}


def test_a_second_interrupt_leaves_the_training_to_itself(state_dir: Path) -> None:
    running = start_headless(state_dir, [*ENDLESS, "--save-s", "20"])
    try:
        wait_until(lambda: (told := run_state(state_dir)) and told["step"], "a step")
        running.send_signal(signal.SIGINT)
        wait_until(lambda: (told := run_state(state_dir)) and told["state"] == "stopping", "the soft stop")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=20)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0 and "the training goes on: cockpit attach it" in err
    told = run_state(state_dir)
    assert told is not None and told["state"] == "stopping"
    os.kill(told["pid"], 0)


def test_whoever_asks_while_a_run_starts_does_not_come_before_its_own_engine(state_dir: Path) -> None:
    """An engine that was started for asking would take the run's lock, and nobody would ever start the training."""
    run = new_rundir("train.py", "it", runs_folder(state_dir, {}), safe_sockets())
    facts = {"run": "it", "argv": ["x"], "cwd": "/", "script": "train.py", "started_s": 1.0}
    write_json(run.facts_file, {**facts, "host": socket.gethostname(), "boot": boot_id()})
    assert look(run).state == "starting"
    asking = threading.Thread(target=revive, args=(run,), daemon=True)
    asking.start()
    asking.join(0.7)
    assert asking.is_alive() and not run.lock.exists()
    os.utime(run.facts_file, (1, 1))
    asking.join(60)
    assert not asking.is_alive()
    wait_until(lambda: recorded_state(run).phase == "lost", "a start that came to nothing to be told", timeout_s=45)


def test_hanging_up_ends_only_the_watching_and_attach_goes_on(state_dir: Path) -> None:
    command = trainer("--epochs", "3", "--steps", "100", "--speed", "2", "--exit", "2")
    running = start_headless(state_dir, command)
    try:
        wait_until(lambda: (told := run_state(state_dir)) and told["step"], "a step")
        running.send_signal(signal.SIGHUP)
        running.communicate(timeout=20)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    attached = ask(state_dir, "attach", "it", "--json", timeout_s=60)
    told = json.loads(attached.stdout)
    assert (attached.returncode, told["exit_status"]) == (0, 2), "2 would be the cockpit's word for a wrong option"


def test_a_lost_engine_does_not_end_the_watching(state_dir: Path) -> None:
    running = start_headless(state_dir, trainer("--epochs", "4", "--steps", "100", "--speed", "2", "--exit", "5"))
    try:
        wait_until(lambda: (told := run_state(state_dir)) and told["step"], "a step")
        kill_engines(state_dir)
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 5 and "ended with status 5" in out


def test_a_lost_engine_does_not_end_the_waiting_for_a_change(state_dir: Path) -> None:
    with detached(ENDLESS, state_dir, env=PATH):
        wait_until(lambda: peek(state_dir)["step"], "a step")
        words = [*COCKPIT, "set", "--state-dir", str(state_dir), "train.py:41:num_workers=2", "--now", "--wait"]
        waiting = subprocess.Popen(words, cwd=REPO, env=clean_env(PATH), stdout=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: peek(state_dir)["ledger"], "the change in the ledger")
            kill_engines(state_dir)
            out, _ = waiting.communicate(timeout=200)
        finally:
            waiting.kill()
            waiting.wait()
        assert waiting.returncode == 0 and json.loads(out)["outcome"] == "kept"


def kill_engines(state_dir: Path) -> None:
    """SIGKILL to the engines of the runs kept there, found by their own command line."""
    engines = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit() and is_engine(folder, state_dir)]
    assert engines
    for folder in engines:
        os.kill(int(folder.name), signal.SIGKILL)


def is_engine(folder: Path, state_dir: Path) -> bool:
    try:
        line = (folder / "cmdline").read_bytes()
    except OSError:
        return False
    return b"engine/__main__.py" in line and os.fsencode(state_dir) in line


def test_following_the_output_ends_with_the_run(state_dir: Path) -> None:
    with detached(trainer("--epochs", "2", "--steps", "100", "--speed", "4"), state_dir, env=PATH) as data:
        followed = ask(state_dir, "logs", "-f")
        assert followed.returncode == 0 and followed.stdout.encode() == (data / "output.log").read_bytes()
        assert "epoch 1" in followed.stdout


def test_detaching_prints_the_name_alone(state_dir: Path) -> None:
    words = [*COCKPIT, "run", "--detach", "--state-dir", str(state_dir), "--", *trainer("--steps", "5")]
    plain = subprocess.run(words, cwd=REPO, env=clean_env(PATH), capture_output=True, text=True, timeout=60)
    assert plain.returncode == 0 and plain.stdout.startswith("scripted-") and plain.stdout.count("\n") == 1
    assert plain.stderr.count("\n") == 1 and "cockpit attach" in plain.stderr
    words.insert(words.index("--"), "--json")
    told = json.loads(subprocess.run(words, cwd=REPO, env=clean_env(PATH), capture_output=True, timeout=60).stdout)
    assert set(told) == {"run", "data_dir", "socket"} and Path(told["data_dir"]).is_dir()


def test_a_reader_that_leaves_is_no_error(state_dir: Path) -> None:
    line = f"{sys.executable} -m cockpit.cli.main help | head -1"
    done = subprocess.run(line, shell=True, cwd=REPO, env=clean_env(PATH), capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and done.stdout.startswith("cockpit")


def test_the_verbs_answer_at_once(state_dir: Path) -> None:
    """A ratio, since the machine is shared: no slower than a few starts of Python itself."""

    def cost(words: list[str]) -> float:
        begun = os.times()
        subprocess.run(words, cwd=REPO, env=clean_env(PATH), capture_output=True, timeout=60)
        now = os.times()
        return now.children_user + now.children_system - begun.children_user - begun.children_system

    python = min(cost([sys.executable, "-c", "import json, asyncio"]) for _ in range(5))
    verb = min(cost([*COCKPIT, "ls", "--state-dir", str(state_dir)]) for _ in range(5))
    assert verb < 4 * python, (verb, python)


def in_a_terminal(code: str, term: str) -> str:
    """What Python prints that runs ``code`` in the foreground of a terminal of that kind."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(REPO)
        os.execve(sys.executable, [sys.executable, "-c", code], {**clean_env(PATH), "TERM": term})
    out = b""
    try:
        while piece := os.read(terminal, 4096):
            out += piece
    except OSError:
        pass  # the end of a terminal whose last process has gone
    os.waitpid(pid, 0)
    os.close(terminal)
    return out.decode()


@pytest.mark.parametrize(("term", "answer"), [("xterm-256color", "True"), ("dumb", "False"), ("", "False")])
def test_a_screen_needs_a_terminal_that_can_draw(term: str, answer: str) -> None:
    code = "from cockpit.cli.run import has_terminal; print('screen:', has_terminal())"
    assert f"screen: {answer}" in in_a_terminal(code, term)


@pytest.mark.parametrize(("given", "answer"), [("terminal", "True 24 80"), ("pipe", "False"), ("nothing", "False")])
def test_a_training_reads_from_a_terminal_where_it_would_have_one_by_hand(
    state_dir: Path, given: str, answer: str
) -> None:
    """And from the null device where it would not: what is piped into cockpit is not the training's."""
    ask_it = "import os, sys; print('input:', os.isatty(0), os.popen('stty size').read(), repr(sys.stdin.read()))"
    words = [*COCKPIT, "run", "--detach", "--name", "asks", "--state-dir", str(state_dir), "--", sys.executable]
    words += ["-c", ask_it]
    if given == "terminal":
        in_a_terminal(f"import subprocess; subprocess.run({words!r}, check=True)", "xterm")
    else:
        stdin = {"input": "typed"} if given == "pipe" else {"stdin": subprocess.DEVNULL}
        subprocess.run(words, cwd=REPO, env=clean_env(PATH), check=True, text=True, capture_output=True, **stdin)
    output = runs_folder(state_dir, os.environ) / "asks" / "output.log"
    said = wait_until(lambda: output.read_text().split("input: ")[1:], "what the training was given")
    assert said[0].split() == [*answer.split(), "''"]


def test_a_run_in_the_background_of_a_terminal_has_no_screen() -> None:
    code = (
        "import os, sys\n"
        "from cockpit.cli.run import has_terminal\n"
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    print('screen:', has_terminal(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert "screen: False" in in_a_terminal(code, "xterm")


def test_a_terminal_without_our_characters_still_gets_an_answer() -> None:
    env = clean_env({**PATH, "PYTHONIOENCODING": "latin-1"})
    words = [*COCKPIT, "run", "--set", "num_workers=→", "x.py"]
    done = subprocess.run(words, cwd=REPO, env=env, capture_output=True, timeout=60)
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"num_workers" in done.stderr
