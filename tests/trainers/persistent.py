"""One global loader with two persistent workers, iterated anew in each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

seed(6)
LOADER = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
MODEL = mlp()
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.05)


def train_one_epoch(epoch):
    seen = 0
    for step, (x, y) in enumerate(LOADER):
        OPTIMIZER.zero_grad()
        loss = nn.functional.mse_loss(MODEL(x), y)
        loss.backward()
        OPTIMIZER.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    return seen


finish(MODEL, samples=[train_one_epoch(epoch) for epoch in range(EPOCHS)])
