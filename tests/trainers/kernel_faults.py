"""A training whose model cannot do with less precision, or cannot be compiled: FAULTS says how, epoch by epoch.

In float32, and uncompiled, this is a quiet little training. OWN is what the script itself sets in the second step of
an epoch ("bf16" or "compile"), as its author would: then things end as they end. It has never heard of any tool that
may watch it.
"""

import contextlib
import os
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, Numbers, finish, seed

FAULTS = os.environ.get("FAULTS", "none").split(",")
OWN = os.environ.get("OWN", "")
WIDTH = 16
fault = "none"


class Old(torch.autograd.Function):
    """Written before anybody had lower precision: its backward multiplies what comes by what it saved."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.drop = nn.Linear(8, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.2)
        self.two, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.register_buffer("table", torch.zeros(BATCH, WIDTH))
        self.turn, self.step = 0, 0

    def forward(self, x):
        h = self.drop(self.norm(self.one(x)))
        late = self.step > 6
        if fault == "assign" or (fault == "assign-late" and late):
            table = torch.zeros(len(x), WIDTH)
            table[torch.arange(len(x))] = self.two(h)
            h = table
        elif fault == "scatter":
            h = torch.zeros(len(x), WIDTH).scatter_add_(1, torch.arange(WIDTH).expand(len(x), -1), self.two(h))
        elif fault == "evaluating" and not self.training:
            h = torch.from_numpy(self.two(h).detach().numpy())
        elif fault == "backward":
            h = Old.apply(h, self.two.weight)
        elif fault == "vanish":  # what bfloat16 cannot add to 1 has no gradient behind a relu
            return nn.functional.linear((1 + 1e-4 * self.two(h) - 1).relu() * 1e4, self.head.weight)
        elif fault == "storm":
            self.turn += 1
            h = self.two(h) * (1 + self.turn / 1000)
        else:
            h = self.two(h)
        out = self.head(h.relu())
        if fault in ("nan", "nan-skipped", "nan-once"):
            # an epsilon that float32 can add to 1 and bfloat16 cannot
            steep = fault != "nan-once" or self.step == 4
            chance = torch.sigmoid(out.abs() + (9 if steep else 0))
            out = out + 1e-3 * torch.log(1 + 1e-5 - chance)
        elif fault == "nan-own" and self.step == 1:
            out = out * float("nan")
        return out


def region():
    """What the author would write round the forward, or nothing."""
    own = OWN == "bf16" and fault != "none"
    return torch.autocast("cpu", torch.bfloat16) if own else contextlib.nullcontext()


def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            with region():
                out = model(x)
            out = out.float() if OWN else out  # the metric is NumPy's
            total += float(((out.numpy() - y.numpy()) ** 2).mean())
    model.train()
    return total / len(loader)


def main():
    global fault
    warnings.simplefilter("ignore")
    seed(7)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loader, validation = DataLoader(Numbers(), BATCH, shuffle=True), DataLoader(Numbers(24), BATCH)
    if OWN == "compile":
        model.compile()
    for epoch, fault in enumerate(FAULTS):
        losses = []
        for step, (x, y) in enumerate(loader):
            model.step = step
            optimizer.zero_grad()
            with region():
                out = model(x)
            loss = nn.functional.mse_loss(out.float(), y)
            loss.backward()
            losses.append(loss.item())
            if fault not in ("nan-skipped", "nan-once") or torch.isfinite(loss):
                optimizer.step()
        schedule.step()
        print(f"epoch {epoch} {fault} losses {losses!r}")
        print(f"epoch {epoch} {fault} validation {evaluate(model, validation)!r}")
    whole = all(bool(p.isfinite().all()) for p in model.parameters())
    finish(model, whole=whole, steps=int(next(iter(optimizer.state.values()))["step"]))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(f"DIED {type(error).__name__}", flush=True)
        os._exit(1)
