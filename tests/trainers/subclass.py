"""A DataLoader subclass whose constructor takes other things than a DataLoader's, and moves batches itself."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed


class SpectrumLoader(DataLoader):
    def __init__(self, folder, rate_hz, *, quick=False):
        self.folder, self.rate_hz = folder, rate_hz
        super().__init__(Numbers(SAMPLES // 2 if quick else SAMPLES), batch_size=BATCH, shuffle=True)

    def __iter__(self):
        for x, y in super().__iter__():
            yield x * (self.rate_hz / 16000), y


seed(8)
loader = SpectrumLoader("/data/spectra", 8000)
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
        print(f"epoch {epoch} step {step} of {len(loader)} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples)
