"""Written as people write programs: main() behind a guard, argparse, dropout, tqdm-less progress on stderr."""

import argparse
import random
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, seed


def build(p):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--dropout", type=float, default=0.25)
    args = parser.parse_args()
    seed(23)
    loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=0)
    model = build(args.dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    samples = []
    for epoch in range(args.epochs):
        seen = 0
        for step, (x, y) in enumerate(loader):
            if random.random() < 0.5:
                x = x + float(np.random.normal(0, 0.01))
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            seen += len(x)
            sys.stderr.write(f"\repoch {epoch} {seen}/{len(loader.dataset)} loss {loss.item()!r}")
        sys.stderr.write("\n")
        samples.append(seen)
        print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]!r}")
    warnings.warn("a warning of the script's own")
    finish(model, samples=samples)


if __name__ == "__main__":
    main()
