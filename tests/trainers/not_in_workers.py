"""A dataset that cannot be used in a worker: it keeps a connection that belongs to the process that opened it."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


class Connected(Dataset):
    def __init__(self):
        self.numbers = Numbers()
        self.owner = os.getpid()

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        if os.getpid() != self.owner:
            raise ConnectionError("this connection was opened by another process")
        return self.numbers[index]


seed(26)
loader = DataLoader(Connected(), batch_size=BATCH, shuffle=True)
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
