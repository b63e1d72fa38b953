"""Makes a new DataLoader in each epoch, with one worker, as curriculum and re-shuffling scripts do."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

seed(24)
dataset = Numbers()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    order = torch.randperm(SAMPLES).tolist()
    loader = DataLoader(Subset(dataset, order), batch_size=BATCH, num_workers=1)
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
