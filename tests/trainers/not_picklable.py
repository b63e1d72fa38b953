"""Would spawn its workers but has none, and could not have any: its collate function is a lambda."""

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


def main():
    torch.multiprocessing.set_start_method("spawn")
    seed(27)
    loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, collate_fn=lambda items: default_collate(items))
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
            print(f"epoch {epoch} step {step} loss {loss.item()!r}")
        samples.append(seen)
    finish(model, samples=samples)


if __name__ == "__main__":
    main()
