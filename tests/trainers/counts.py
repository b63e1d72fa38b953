"""Counts its steps by itself, before the training, and plans by that number: the epoch and a warm-up."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

seed(31)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
steps_per_epoch = len(loader.dataset) // BATCH
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=steps_per_epoch)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader):
        if step == steps_per_epoch:
            break
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        warm_up.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples)
