"""A training whose batches cannot be loaded when they are larger than its own: FAULT says what becomes of them."""

import os
import resource
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

FAULT = os.environ.get("FAULT", "killed")
WORKERS = int(os.environ.get("WORKERS", "2"))


def collate(rows):
    if len(rows) > BATCH:
        if FAULT == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif FAULT == "shm":  # a file in /dev/shm cannot grow: what a full one answers, if with another number
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        else:
            raise MemoryError
    return default_collate(rows)


def main():
    seed(5)
    data = Numbers()
    loader = DataLoader(data, BATCH, shuffle=True, collate_fn=collate, num_workers=WORKERS)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples = []
    for epoch in range(EPOCHS):
        seen = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
            print(f"epoch {epoch} loss {loss.item()!r}")
        samples.append(seen)
    finish(model, samples=samples)


if __name__ == "__main__":
    main()
