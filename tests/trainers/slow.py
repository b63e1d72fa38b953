"""A training whose loader is what holds it back: every item sleeps, as if it came over a network. Ends when told to.

Environment: EPOCHS, SAMPLES, PAUSE_S as for all of them; UNTIL names a file whose appearance ends the training.
"""

import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

UNTIL = os.environ.get("UNTIL", "")


def main():
    seed(33)
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to stop", flush=True), sys.exit(0)))
    loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples = []
    for epoch in range(EPOCHS):
        seen = 0
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
        print(f"epoch {epoch} loss {loss.item()!r}", flush=True)
        samples.append(seen)
        if UNTIL and os.path.exists(UNTIL):
            break
    finish(model, samples=samples)


if __name__ == "__main__":
    main()
