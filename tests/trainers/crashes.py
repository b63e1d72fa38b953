"""A training with a session that crashes once, where CRASH says: ``raise``, ``kill``, ``oom`` or ``exit``, at CRASH_AT.

Which process of the run it is, it knows by the folders that the run makes, which no real script would read.
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


def crash(epoch, step):
    how, when = os.environ.get("CRASH"), os.environ.get("CRASH_AT", "3.2")
    if how is None or f"{epoch}.{step}" != when or "COCKPIT_LIFE" in os.environ or "COCKPIT_RUN" not in os.environ:
        return
    time.sleep(0.5)  # so that what it has made is known
    if how == "raise":
        raise RuntimeError("a bad batch\nand more about it")
    if how == "oom":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if how == "exit":
        sys.exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = cockpit.session(model=model, optimizer=optimizer)
    loader = DataLoader(Numbers(48), batch_size=8, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0")))
    for epoch in run.epochs(6):
        for step, (x, y) in enumerate(loader):
            crash(epoch, step)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
    finish(model)
