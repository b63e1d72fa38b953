"""All data in one tensor, batches cut out by hand: there is no DataLoader at all."""

import torch
from torch import nn

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

seed(14)
numbers = Numbers()
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    order = torch.randperm(len(numbers))
    for start in range(0, len(order), BATCH):
        picked = order[start : start + BATCH]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(numbers.x[picked]), numbers.y[picked])
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} at {start} loss {loss.item()!r}")
    samples.append(len(order))

finish(model, samples=samples)
