"""What the package does."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


def main():
    seed(51)
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
            print(f"epoch {epoch} step {step} loss {loss.item()!r}")
        samples.append(seen)
    finish(model, samples=samples)
