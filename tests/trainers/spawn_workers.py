"""Loader workers that are spawned, not forked: everything they need is pickled, and this file is imported again."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, items):
        x, y = (torch.stack(part) for part in zip(*items))
        return x * self.factor, y


def main():
    seed(17)
    loader = DataLoader(
        Numbers(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=Scaled(0.5),
    )
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples = []
    for epoch in range(min(EPOCHS, 2)):
        seen = 0
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
            print(f"epoch {epoch} step {step} loss {loss.item()!r}")
        samples.append(seen)
    finish(model, samples=samples)


if __name__ == "__main__":
    main()
