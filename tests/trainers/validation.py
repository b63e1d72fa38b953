"""Train and validation loader in turns, with eval(), no_grad() and a scheduler that looks at the validation loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, random_split

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, seed


def validate(model, loader):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.mse_loss(model(x), y, reduction="sum").item()
            count += len(x)
    model.train()
    return total / count


seed(2)
held_out = SAMPLES // 4
train_set, val_set = random_split(Numbers(SAMPLES + held_out), [SAMPLES, held_out])
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)
val_loader = DataLoader(val_set, batch_size=2 * BATCH)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

print("before", repr(validate(model, val_loader)))
samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    found = validate(model, val_loader)
    scheduler.step(found)
    samples.append(seen)
    print(f"epoch {epoch} validation {found!r} lr {optimizer.param_groups[0]['lr']!r}")

finish(model, samples=samples)
