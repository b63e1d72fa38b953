"""A training that opts in with three lines, and waits in its second epoch for a process that may follow it.

``LIVES=3``: so many processes of the run wait; told by the folders that the run makes, which no real script would read.
"""

import os
import signal
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import cockpit
from toy import Numbers, finish, seed


def wait_for_the_next(epoch, first):
    """At a step, so that nobody is kept from asking; the hand-over itself comes at an epoch's end."""
    folder, wanted = os.environ.get("COCKPIT_RUN"), int(os.environ.get("LIVES", "1"))
    life = os.path.basename(os.environ.get("COCKPIT_LIFE", "life-1"))
    number = int(life.split("-")[1]) if life.startswith("life-") else wanted
    if folder is None or number >= wanted or epoch != first + 1:
        return
    while not os.path.exists(os.path.join(folder, "life-%d" % (number + 1), "ready.json")):
        time.sleep(0.05)
    time.sleep(2)  # the next boundary is soon


if __name__ == "__main__":
    seed(5)
    if os.environ.get("FAIL"):
        sys.exit(9)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)
    run = cockpit.session(model=model, optimizer=optimizer, scheduler=scheduler)
    loader = DataLoader(Numbers(48), batch_size=8, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0")))
    first = None
    for epoch in run.epochs(int(os.environ.get("EPOCHS", "8"))):
        first = epoch if first is None else first
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
            if step == 3:
                wait_for_the_next(epoch, first)
            time.sleep(float(os.environ.get("PAUSE_S", "0")))
        scheduler.step()
    finish(model, lr=scheduler.get_last_lr(), handler=str(signal.getsignal(signal.SIGTERM)))
