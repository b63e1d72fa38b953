"""Closes every descriptor that it did not open itself, as daemons do, and then opens its own in their places."""

import os
import socket
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

seed(34)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
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
        print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
        if epoch == 0 and step == 5:
            os.closerange(3, 4096)
            pairs = [socket.socketpair() for _ in range(8)]
            files = [tempfile.TemporaryFile() for _ in range(8)]
        time.sleep(0.05)
    samples.append(seen)

for ours, theirs in pairs:
    for end in (ours, theirs):
        end.setblocking(False)
        try:
            print("somebody wrote into our socket:", end.recv(100))
        except BlockingIOError:
            pass
        os.fstat(end.fileno())
for file in files:
    file.seek(0)
    assert file.read() == b""
    os.fstat(file.fileno())
finish(model, samples=samples)
