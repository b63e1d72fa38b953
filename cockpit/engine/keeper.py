"""Starts the training, waits for it, writes how it ended. Run as ``python -I -S keeper.py FOLDER`` by the engine.

Reads what to start as one JSON object ({argv, env, cwd, window}) from stdin, so that its own environment bears no mark;
``window`` is rows and columns of the terminal that would be the training's input, or null. It has its own session,
ignores hang-ups, and must survive whatever happens to the engine, so it does nothing else.

FOLDER is the run's, or that of a later life of it. There the plan has ``output`` (where output.log is), ``log`` (where
the new process prints until its turn), ``old`` (who hands over) and ``back``: what to start instead if the new process
ends before its first step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself would cost a third of our start
if TYPE_CHECKING:
    from typing import Any


HEARD = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
         signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}  # fmt: skip


def main(folder: str) -> None:
    """Write pids.json, then exit_status (128 + n for signal n; 126/127 and a reason where nothing could start)."""
    plan = json.load(sys.stdin)
    if os.getsid(0) != os.getpid():
        os.setsid()
    become_subreaper()
    # who tells every process of a job something (a scheduler does) means the training
    for number in signal.valid_signals() - HEARD:
        signal.signal(number, signal.SIG_IGN)
    be_like(**plan.get("like", {}))
    # the place for the answer is taken now: a disk that is full at the end must not swallow it
    write(folder, "exit_status.new", " " * 512)
    output = plan.get("output") or os.path.join(folder, "output.log")
    status, failed = see_through(folder, plan, plan.get("log") or output, {})
    if plan.get("back") and goes_back(folder, status) and wait_until_gone(folder, **plan["old"]):
        end_what_is_left()
        status, failed = see_through(folder, plan["back"], output, {"back": failed.strip() or status})
    finish(folder, failed or "%d\n" % status)


def be_like(
    umask: int | None = None,
    nice: int | None = None,
    cpus: tuple[int, ...] = (),
    limits: dict[str, list[int]] | None = None,
) -> None:
    """What the training inherits from us: as it was in the life before, whoever started us. What is refused stays."""
    if umask is not None:
        os.umask(umask)
    import resource

    wishes: list[Any] = [(os.setpriority, os.PRIO_PROCESS, 0, nice)] if nice is not None else []
    wishes += [(os.sched_setaffinity, 0, cpus)] if cpus else []
    wishes += [(resource.setrlimit, int(number), tuple(pair)) for number, pair in (limits or {}).items()]
    for change, *words in wishes:
        try:
            change(*words)
        except (OSError, ValueError):
            continue


def see_through(folder: str, plan: dict[str, Any], output: str, more: dict[str, Any]) -> tuple[int, str]:
    """Start what ``plan`` says, write its pids, wait for it: its exit status, and why it could not begin, if so."""
    blank = blank_terminal(plan.get("window"))
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        begin(output, plan["argv"], plan["env"], plan["cwd"], tell, blank.path if blank else os.devnull)
    os.close(tell)
    failed = os.read(told, 1000).decode()  # ends empty as soon as the training's own program runs
    os.close(told)
    if not failed:
        times = {"keeper_started": started(os.getpid()), "training_started": started(pid)}
        write(folder, "pids.json.new", json.dumps({"keeper": os.getpid(), "training": pid, **times, **more}))
        os.replace(os.path.join(folder, "pids.json.new"), os.path.join(folder, "pids.json"))
    return wait_for(pid, blank), failed


def goes_back(folder: str, status: int) -> bool:
    """Whether the new process was handed to and has failed before its first step, and nobody wants it to end.

    Where nobody has handed over yet, nobody shall any more: ``go`` is made once, by whoever comes first.
    """
    try:
        write(folder, ".go.keeper", json.dumps({"refused": "the new process ended with status %d" % status}))
        os.link(os.path.join(folder, ".go.keeper"), os.path.join(folder, "go"))
        return False
    except OSError:
        go = read(folder, "go")
    asked = any(os.path.exists(os.path.join(folder, name)) for name in ("stepped", "stop"))
    ended_well = status == 0 and not go.get("epochs_left")
    return "handoff" in go and not asked and not ended_well and status not in (128 + 2, 128 + 15)


def wait_until_gone(folder: str, pid: int, started_ticks: int | None, leave_s: float = 30.0) -> bool:
    """The process that handed over ends first: two must never train at once. Who cannot end in time is ended.

    False: meanwhile somebody has stopped the run.
    """
    for turn in range(int(10 * leave_s) + 300):
        if started(pid) != started_ticks or started_ticks is None:
            break
        if turn == int(10 * leave_s) + 100:
            end(pid)
        time.sleep(0.1)
    return not os.path.exists(os.path.join(folder, "stop"))


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # just then it has


def end_what_is_left() -> None:
    """What the new process has left behind ends before another begins: a shell's training may outlive it."""
    try:
        beside("left_behind.py")["end_children"]()
    except (ImportError, OSError):
        return  # gone since, with all of ours


def beside(name: str) -> dict[str, Any]:
    """What a file in our own folder defines."""
    import runpy

    return runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))


def become_subreaper() -> None:
    """Orphans of the training become our children, so that they are reaped and stay findable."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def blank_terminal(window: Any) -> Any:
    """A terminal to read nothing from, or None: for a training that would have none, and where none can be had."""
    if window is None:
        return None
    try:
        blank = beside("blank.py")["blank_terminal"](*window)
    except (ImportError, OSError):
        return None
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # taken by wait_for
    return blank


def begin(path: str, argv: list[str], env: dict[str, str], cwd: str, tell: int, source: str) -> None:
    """In the child: default signals, an input that is at its end, output to the file, then become the training.

    Never returns.
    """
    try:
        os.setpgid(0, 0)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.dup2(os.open(source, os.O_RDONLY | os.O_NOCTTY), 0)
        output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(cwd)
        os.execve(argv[0], argv, env)
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        os.write(tell, ("%d\n%s: %s\n" % (code, argv[0], error.strerror)).encode())
    finally:
        os._exit(126)


def wait_for(pid: int, blank: Any) -> int:
    """Exit status of the training; other children that end meanwhile are orphans we adopted."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG if blank else 0)
        if not ended:
            signal.sigtimedwait([signal.SIGCHLD], 0.5)
            blank = blank if blank.answer() else None
        elif ended == pid:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def finish(folder: str, text: str) -> None:
    """Put the answer in place in one step; a file system that refuses is asked again for a minute."""
    path = os.path.join(folder, "exit_status")
    for _ in range(60):
        try:
            with open(path + ".new", "r+" if os.path.exists(path + ".new") else "w") as file:
                file.write(text)
                file.truncate()
            os.replace(path + ".new", path)
            return
        except OSError:
            time.sleep(1.0)


def started(pid: int) -> int | None:
    """When the process began, in clock ticks since boot: tells it from a later one with the same pid."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def read(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name)) as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return {}


def write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
