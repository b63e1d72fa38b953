"""A stream (iterable dataset) that would serve everything once for each worker: it does not shard itself."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed


class Stream(IterableDataset):
    def __init__(self):
        self.numbers = Numbers(SAMPLES)

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        for index in range(SAMPLES):
            yield self.numbers[index]


seed(10)
loader = DataLoader(Stream(), batch_size=BATCH)
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
