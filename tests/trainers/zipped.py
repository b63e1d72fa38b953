"""Semi-supervised: a labelled and an unlabelled loader zipped into one step."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

seed(11)
labelled = DataLoader(Numbers(SAMPLES), batch_size=BATCH, shuffle=True)
unlabelled = DataLoader(Numbers(3 * SAMPLES), batch_size=3 * BATCH, shuffle=True)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, ((x, y), (u, _)) in enumerate(zip(labelled, unlabelled)):
        supervised = nn.functional.mse_loss(model(x), y)
        smooth = nn.functional.mse_loss(model(u), model(u + 0.01).detach())
        loss = supervised + 0.1 * smooth
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(x) + len(u)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples)
