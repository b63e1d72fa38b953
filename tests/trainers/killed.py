"""Trains for an epoch and is then killed outright, as by the kernel's out-of-memory killer."""

import os
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, Numbers, mlp, seed

seed(18)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=1)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
        if epoch == 1 and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
