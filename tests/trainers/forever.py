"""One iterator kept for ever: the sampler never ends, so no epoch boundary ever comes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed


class Endless(Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        generator = torch.Generator().manual_seed(99)
        while True:
            yield from torch.randperm(self.count, generator=generator).tolist()


seed(5)
dataset = Numbers()
batches = iter(DataLoader(dataset, batch_size=BATCH, sampler=Endless(len(dataset))))
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

seen = 0
for iteration in range(EPOCHS * (SAMPLES // BATCH)):
    x, y = next(batches)
    seen += len(x)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"iteration {iteration} loss {loss.item()!r}")

finish(model, samples=[seen])
