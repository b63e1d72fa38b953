"""A training that opts in with three lines, and waits in its second epoch for a process that may follow it.

``LIVES=3``: so many processes of the run wait; told by the folders that the run makes, which no real script would read.
Where it begins it prints what a script can know of itself: each process of the run must say the same as a bare one.
"""

import json
import os
import signal
import sys
import time

if os.environ.get("PINNED"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import torch
from torch import nn
from torch.utils.data import DataLoader

import cockpit
from toy import Numbers, finish, seed


class Shifted(Numbers):
    """A class of this script's own, which spawned workers must find in it."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x, y + 0.5


class Best:
    """An object of this script's own class in the state."""

    def __init__(self, loss):
        self.loss = loss


class Remembers:
    def __init__(self):
        self.best = Best(float("inf"))

    def state_dict(self):
        return {"best": self.best}

    def load_state_dict(self, state):
        assert type(state["best"]) is Best, "pickled by the process before, found by this one"
        self.best = state["best"]


def what_i_am():
    main = sys.modules["__main__"]
    handlers = {each.name: str(signal.getsignal(each)).split(" at ")[0] for each in signal.Signals}
    return {
        "argv": sys.argv,
        "path": sys.path[0],
        "name": __name__,
        "file": __file__,
        "cwd": os.getcwd(),
        "main": main.__dict__ is globals(),
        "pickled as": Best.__module__,
        "handlers": handlers,
        "relative": os.path.getsize(sys.argv[0]),
        "stdin": os.readlink("/proc/self/fd/0"),
        "threads": torch.get_num_threads(),
    }


def wait_for_the_next(epoch, first):
    """At a step, so that nobody is kept from asking; the hand-over itself comes at an epoch's end."""
    folder, wanted = os.environ.get("COCKPIT_RUN"), int(os.environ.get("LIVES", "1"))
    life = os.path.relpath(os.environ.get("COCKPIT_LIFE", "life-1"), folder).split(os.sep)[0].rpartition("-")[2]
    number = int(life) if life.isdigit() else 1
    if folder is None or number >= wanted or epoch != first + 1:
        return
    while not os.path.exists(os.path.join(folder, "life-%d" % (number + 1), "ready.json")):
        time.sleep(0.05)
    time.sleep(1)  # the next boundary is soon


if __name__ == "__main__":
    print("BEGINS", json.dumps(what_i_am()), flush=True)
    seed(5)
    if os.environ.get("FAIL"):
        sys.exit(9)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    kept = Remembers()
    run = cockpit.session(model=model, optimizer=optimizer, scheduler=scheduler, kept=kept)
    workers = int(os.environ.get("WORKERS", "0"))
    more = {"multiprocessing_context": os.environ.get("METHOD", "fork")} if workers else {}
    loader = DataLoader(Shifted(48), batch_size=8, shuffle=True, num_workers=workers, **more)
    first = run.restored or 0
    for epoch in run.epochs(int(os.environ.get("EPOCHS", "8"))):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            kept.best.loss = min(kept.best.loss, loss.item())
            print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
            if step == 3:
                wait_for_the_next(epoch, first)
            time.sleep(float(os.environ.get("PAUSE_S", "0")))
        scheduler.step()
    finish(model, lr=scheduler.get_last_lr(), best=kept.best.loss)
    sys.exit(int(os.environ.get("STATUS", "0")))
