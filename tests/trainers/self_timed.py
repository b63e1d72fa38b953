"""Times itself: each phase of a step takes a known while, and the script prints what it measured with its own clock."""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from toy import BATCH, finish, seed

STEPS = int(os.environ.get("STEPS", "200"))
ITEM_S, FORWARD_S, BACKWARD_S, OPTIMIZER_S, OTHER_S = 0.001, 0.004, 0.003, 0.002, 0.005


class Slow(Dataset):
    def __len__(self):
        return STEPS * BATCH // 2

    def __getitem__(self, index):
        time.sleep(ITEM_S)
        return torch.full((4,), index / 100)


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(BACKWARD_S)
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        time.sleep(FORWARD_S)
        return SlowBackward.apply(self.linear(x))


class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(OPTIMIZER_S)
        return super().step(closure)


def main():
    seed(35)
    model = Net()
    optimizer = SlowSGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Slow(), batch_size=BATCH)
    spent = dict.fromkeys(("wait", "forward", "backward", "optimizer", "other", "step"), 0.0)
    seen = 0
    for _ in range(2):
        batches = iter(loader)
        while True:
            began = time.perf_counter()
            x = next(batches, None)
            if x is None:
                break
            fetched = time.perf_counter()
            loss = model(x).square().mean()
            computed = time.perf_counter()
            loss.backward()
            propagated = time.perf_counter()
            optimizer.step()
            optimizer.zero_grad()
            updated = time.perf_counter()
            time.sleep(OTHER_S)
            ended = time.perf_counter()
            seen += len(x)
            spent["wait"] += fetched - began
            spent["forward"] += computed - fetched
            spent["backward"] += propagated - computed
            spent["optimizer"] += updated - propagated
            spent["other"] += ended - updated
            spent["step"] += ended - began
    steps = STEPS // 2 * 2
    times = {f"{name}_ms": 1000 * value / steps for name, value in spent.items()}
    print("TIMES " + json.dumps({**times, "samples_per_s": seen / spent["step"], "steps": steps}), flush=True)
    finish(model, samples=[seen])


if __name__ == "__main__":
    main()
