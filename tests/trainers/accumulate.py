"""Gradient accumulation: four backwards for each optimizer step, and the rest of an epoch stepped at its end."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

ACCUMULATE = 4

seed(3)
loader = DataLoader(Numbers(SAMPLES + 2 * BATCH), batch_size=BATCH, shuffle=True)
model = mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

samples = []
updates = 0
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader, start=1):
        loss = nn.functional.mse_loss(model(x), y) / ACCUMULATE
        loss.backward()
        seen += len(x)
        if step % ACCUMULATE == 0 or step == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples, updates=updates)
