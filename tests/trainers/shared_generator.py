"""One torch.Generator, handed both to the loader and to its sampler."""

import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

from toy import BATCH, EPOCHS, SAMPLES, Numbers, digest, finish, mlp, seed

seed(21)
generator = torch.Generator().manual_seed(2121)
weights = torch.linspace(0.1, 1.0, SAMPLES)
sampler = WeightedRandomSampler(weights, SAMPLES, replacement=True, generator=generator)
loader = DataLoader(Numbers(), batch_size=BATCH, sampler=sampler, generator=generator)
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

finish(model, samples=samples, generator=digest(generator.get_state().numpy().tobytes()))
