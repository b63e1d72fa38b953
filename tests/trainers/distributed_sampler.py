"""One rank's share of the data: DistributedSampler with set_epoch (no process group is needed for that)."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

seed(20)
dataset = Numbers(2 * SAMPLES)
sampler = DistributedSampler(dataset, num_replicas=2, rank=0, shuffle=True, seed=20)
loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
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
