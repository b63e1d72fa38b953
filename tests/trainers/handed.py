"""A training that opts in to hand-offs with three lines; flags choose what it trains with.

    handed.py [--epochs N] [--mega N] [--pause S] [--hold EPOCH:FILE]… FLAG…

``--hold``: in the middle of that epoch it waits until the file is there.

Flags: sgd (momentum, else Adam), lambda (LambdaLR, else StepLR), dropout, scaler, ema, own (a generator of its own),
shared (made before the loop, loader made anew in each epoch), anew (both made anew in each epoch), workers, persistent,
eager (a sampler that draws when it is iterated), augment (draws in the dataset), validation, rare (two more loaders,
used in every third epoch only). It prints each loss.
"""

import argparse
import os
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler

import cockpit
from toy import Numbers, finish, seed

words = argparse.ArgumentParser()
words.add_argument("--epochs", type=int, default=4)
words.add_argument("--mega", type=int, default=0)
words.add_argument("--pause", type=float, default=0)
words.add_argument("--hold", action="append", default=[])
words.add_argument("flags", nargs="*")
args = words.parse_args()
flags = set(args.flags)
held = dict(word.split(":", 1) for word in args.hold)


class Eager(Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(torch.randperm(self.count).tolist())

    def __len__(self):
        return self.count


class Augmented(Numbers):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.01 * torch.randn(8) + 0.01 * random.random() + 0.01 * np.random.rand(), y


class Ballast:
    """A state that takes time to write; its ``stamp`` must stay that of the whole."""

    def __init__(self, mega):
        self.values = torch.zeros(mega * 250_000)

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        assert self.values.numel() == 0 or state["values"].min() == state["values"].max()
        self.values.copy_(state["values"])


class Ema:
    def __init__(self, model):
        self.shadow = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].mul_(0.9).add_(value.detach(), alpha=0.1)

    def state_dict(self):
        return {"shadow": self.shadow}

    def load_state_dict(self, state):
        self.shadow = state["shadow"]


def loader_of(generator):
    data = Augmented(48) if "augment" in flags else Numbers(48)
    more = {"num_workers": 2} if flags & {"workers", "persistent"} else {}
    more.update({"persistent_workers": True} if "persistent" in flags else {})
    order = {"sampler": Eager(48)} if "eager" in flags else {"shuffle": True}
    return DataLoader(data, batch_size=8, generator=generator, **order, **more)


if __name__ == "__main__":
    seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3 if "dropout" in flags else 0), nn.Linear(16, 1))
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        if "sgd" in flags
        else torch.optim.Adam(model.parameters(), lr=0.01)
    )
    scheduler = (
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.8**epoch)
        if "lambda" in flags
        else torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=64, growth_interval=3, enabled="scaler" in flags)
    ema, ballast = Ema(model), Ballast(args.mega)
    run = cockpit.session(
        model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, ema=ema, ballast=ballast
    )
    torch.manual_seed(6)  # what is drawn between the session and the loop is drawn again
    shared = torch.Generator().manual_seed(7)
    loader = loader_of(shared if flags & {"own", "shared"} else None)
    seen = DataLoader(Numbers(16), batch_size=4, shuffle=True)
    kept = DataLoader(Numbers(16), batch_size=4, sampler=Eager(16), num_workers=1, persistent_workers=True)
    rare = torch.Generator().manual_seed(8)
    for epoch in run.epochs(args.epochs):
        if "shared" in flags:
            loader = loader_of(shared)
        if "anew" in flags:
            loader = loader_of(torch.Generator().manual_seed(40 + epoch))
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled="scaler" in flags):
                loss = nn.functional.mse_loss(model(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if "ema" in flags:
                ema.update(model)
            print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
            if args.pause:
                time.sleep(args.pause)
            while step == 1 and str(epoch) in held and not os.path.exists(held[str(epoch)]):
                time.sleep(0.005)
        ballast.values += 1
        scheduler.step()
        if "validation" in flags:
            with torch.no_grad():
                total = sum(nn.functional.mse_loss(model(x), y).item() for x, y in seen)
            print(f"epoch {epoch} validation loss {total!r}", flush=True)
        if "rare" in flags and epoch % 3 == 0:
            some = DataLoader(Numbers(16), batch_size=4, shuffle=True, generator=rare)
            with torch.no_grad():
                total = sum(nn.functional.mse_loss(model(x), y).item() for each in (some, kept) for x, y in each)
            print(f"epoch {epoch} rare loss {total!r}", flush=True)
    extra = {"lr": scheduler.get_last_lr(), "scale": scaler.state_dict(), "own": shared.get_state().sum().item()}
    extra["ema"] = sum(value.double().sum().item() for value in ema.shadow.values())
    finish(model, **extra)
