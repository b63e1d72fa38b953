"""Forks, spawns, loader workers, exits: who speaks, who stays silent, and that nobody hangs."""

from __future__ import annotations

import signal
import time

from fake_engine import FakeEngine, finish, launch, probe_env, script

FAMILY = """
    import os, signal, sys, threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    def train(seconds, workers=0):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for x in DataLoader(Rows(), batch_size=4, num_workers=workers):
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
                time.sleep(0.005)

    class Rows(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            return torch.full((2,), float(len([t for t in threading.enumerate() if t.name == "cockpit"])))

    def say(word):
        os.write(1, (word + " " + str(os.getpid()) + "\\n").encode())

    if __name__ == "__main__":
        say("main")
        train(0.6)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # blocked here, so it may go to no other thread
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
        seen = {t.name for t in threading.enumerate()}
        say("thread" if "cockpit" in seen else "none")
        for kind in ("_exit", "exit", "exec"):
            pid = os.fork()
            if pid == 0:
                say(kind)
                if kind == "_exit":
                    os._exit(0)
                if kind == "exec":
                    os.execv("/bin/true", ["true"])
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        train(0.4, workers=2)
        assert all(x.sum() == 0 for x in DataLoader(Rows(), num_workers=2))  # no thread of ours in a worker
        for method in sys.argv[1:]:
            child = torch.multiprocessing.get_context(method).Process(target=rank_of, args=(method,))
            child.start()
            child.join(60)
            assert child.exitcode == 0, child.exitcode
        train(0.4)
        say("end")

    def rank_of(method):
        say("rank")
        train(1.0, workers=0)
    """


def family(text: str) -> str:
    """Functions that a child must find come before the main block."""
    head, tail = text.split('    if __name__ == "__main__":\n')
    main, rank = tail.split("    def rank_of(method):\n")
    return head + "    def rank_of(method):\n" + rank.rstrip() + '\n\n    if __name__ == "__main__":\n' + main


def test_only_processes_that_train_speak_and_nobody_hangs(tmp_path):
    path, run = script(tmp_path, family(FAMILY)), tmp_path / "run"
    run.mkdir()
    engine = FakeEngine(run / "s")
    out, err = finish(launch(path, probe_env(run, {}), "fork", "spawn"), 150)
    assert err == ""
    lines = [line.split() for line in out.splitlines()]
    assert [word for word, _ in lines] == ["main", "thread", "_exit", "exit", "exec", "rank", "rank", "end"]
    speakers = [int(pid) for word, pid in lines if word in ("main", "rank")]
    time.sleep(0.2)
    hellos = engine.of("hello")
    assert {m["pid"] for m in hellos} == set(speakers)
    assert next(m["trains"] for m in hellos if m["pid"] == speakers[0]) is False
    assert all(m["trains"] for m in hellos if m["pid"] in speakers[1:])
    assert {m["ppid"] for m in hellos if m["pid"] in speakers[1:]} == {speakers[0]}
    assert all(not m["off"] for m in hellos)


EXITS = """
    import os, sys, time, signal
    import torch
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    how = sys.argv[1]
    end = time.monotonic() + 0.5
    def forever():
        while True:
            yield from DataLoader(torch.ones(40, 2), batch_size=4, num_workers=1)
    for x in forever():
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
        if time.monotonic() > end:
            print("leaving", flush=True)
            if how == "raise":
                raise SystemExit(7)
            if how == "os._exit":
                os._exit(8)
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(5)
    """


def test_the_end_is_the_scripts_own_however_it_comes(tmp_path):
    path, run = script(tmp_path, EXITS), tmp_path / "run"
    run.mkdir()
    FakeEngine(run / "s", reads=False)
    ends = {"raise": 7, "os._exit": 8, "SIGINT": -signal.SIGINT, "SIGTERM": -signal.SIGTERM}
    running = {how: launch(path, probe_env(run, {}), how) for how in ends}
    for how, process in running.items():
        out, err = finish(process, 120)
        assert (out, process.returncode) == ("leaving\n", ends[how])
        assert "cockpit" not in err
        assert ("KeyboardInterrupt" in err) if how == "SIGINT" else (err == "")
