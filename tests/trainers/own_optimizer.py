"""An optimizer class of its own that is no torch.optim.Optimizer (sign descent with momentum)."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


class SignDescent:
    def __init__(self, parameters, lr, beta=0.9):
        self.parameters, self.lr, self.beta = list(parameters), lr, beta
        self.momentum = [torch.zeros_like(parameter) for parameter in self.parameters]

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter, momentum in zip(self.parameters, self.momentum):
            momentum.lerp_(parameter.grad, 1 - self.beta)
            parameter.sub_(self.lr * momentum.sign())


seed(15)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
model = mlp()
optimizer = SignDescent(model.parameters(), lr=0.005)

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

finish(model, samples=samples)
