"""No optimizer and no backward(): gradients from torch.autograd.grad, weights updated as p -= lr * g."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

LR = 0.05

seed(16)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
model = mlp()
parameters = list(model.parameters())

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients):
                p -= LR * g
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples)
