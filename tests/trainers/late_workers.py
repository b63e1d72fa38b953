"""Loader workers that take long to come up, as they do where they import a large script. METHOD starts them."""

import os
import time

import torch
from torch.utils.data import DataLoader

from toy import BATCH, Numbers, finish, mlp, seed

if __name__ != "__main__":
    time.sleep(float(os.environ["IMPORT_S"]))


def main():
    seed(17)
    torch.multiprocessing.set_start_method(os.environ["METHOD"])
    loader = DataLoader(Numbers(), batch_size=BATCH)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(1000):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(0.02)
        print(f"epoch {epoch}", flush=True)
    finish(model)


if __name__ == "__main__":
    main()
