"""Random augmentation in the dataset, drawn from Python's, NumPy's and torch's generators, with one worker."""

import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

WORKERS = int(os.environ.get("WORKERS", "1"))


class Augmented(Dataset):
    def __init__(self):
        self.numbers = Numbers()

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        x, y = self.numbers[index]
        if random.random() < 0.5:
            x = x.flip(0)
        x = x * float(np.random.uniform(0.9, 1.1)) + 0.01 * torch.randn(x.shape)
        return x, y, index


seed(22)
loader = DataLoader(Augmented(), batch_size=BATCH, shuffle=True, num_workers=WORKERS)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples, each_once, draws = [], [], []
for epoch in range(EPOCHS):
    seen = []
    for step, (x, y, index) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        seen += index.tolist()
        draws += [repr(value) for value in x.sum(1).tolist()]
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(len(seen))
    each_once.append(sorted(seen) == list(range(SAMPLES)))
    print(f"epoch {epoch} order {seen}")

finish(model, samples=samples, each_once=each_once, repeated_draws=len(draws) - len(set(draws)))
