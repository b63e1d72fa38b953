"""Loops as frameworks do: reads one batch ahead, and keeps the old iterator until it has the new one."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.iterator = None

    def batches(self):
        """Each batch, and whether it is the last: known only because the next one is fetched first."""
        self.iterator = iter(self.loader)
        upcoming = next(self.iterator)
        while upcoming is not None:
            batch, upcoming = upcoming, next(self.iterator, None)
            yield batch, upcoming is None

    def fit(self, epochs):
        samples = []
        for epoch in range(epochs):
            seen = 0
            for (x, y), last in self.batches():
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                seen += len(x)
                print(f"epoch {epoch} loss {loss.item()!r} last {last}")
            samples.append(seen)
        return samples


seed(25)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
model = mlp()
trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.05), loader)
finish(model, samples=trainer.fit(EPOCHS))
