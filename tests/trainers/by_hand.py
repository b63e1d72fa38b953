"""Neither DataLoader nor optimizer: batches are cut out and weights are moved by hand, after a plain backward."""

import torch
from torch import nn

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

seed(14)
numbers = Numbers()
model = mlp()

samples = []
for epoch in range(EPOCHS):
    order = torch.randperm(len(numbers))
    for start in range(0, len(order), BATCH):
        picked = order[start : start + BATCH]
        model.zero_grad()
        loss = nn.functional.mse_loss(model(numbers.x[picked]), numbers.y[picked])
        loss.backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.05)
        print(f"epoch {epoch} at {start} loss {loss.item()!r}")
    samples.append(len(order))

finish(model, samples=samples)
