"""A training that changes in its middle what is in no state_dict; flags choose what. It prints each loss.

    middle.py [--epochs N] FLAG…

Flags: accumulate (an update each 5 batches, through the epochs), turns (two optimizers, one of them each 4 batches),
scaler (with accumulate), by_hand (a home-made optimizer that accumulates), flat (all gradients in one buffer), holder
(one object of the script's own is the whole state), sparse (an embedding's gradients), thaw and freeze (in epoch 1),
evaluate (a module, for good, from epoch 1 on), dropout (stronger from epoch 1 on), settings (torch's own, in epoch 1),
loose (an attribute of a module of its own, and a hook, which nothing can carry), graph (gradients that have one),
adds_up (steps with gradients that nobody ever zeroes), head_frozen (before the loop), idle (a part of the model that is
used in epoch 0 only, and gradients zeroed in place).
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

import cockpit
from toy import Numbers, finish, seed

words = argparse.ArgumentParser()
words.add_argument("--epochs", type=int, default=4)
words.add_argument("flags", nargs="*")
args = words.parse_args()
flags = set(args.flags)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(4, 8, sparse="sparse" in flags)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 1)
        self.tied = self.head
        self.strength = 1.0
        self.early = nn.Linear(8, 1) if "idle" in flags else None

    def forward(self, x):
        return self.strength * self.head(self.body(x + self.kinds((x[:, 0] > 0).long())))


class Holder:
    def __init__(self, **parts):
        self.__dict__.update(parts)

    def state_dict(self):
        return {name: part.state_dict() for name, part in vars(self).items()}

    def load_state_dict(self, state):
        for name, part in vars(self).items():
            part.load_state_dict(state[name])


class ByHand:
    """Has no torch optimizer: an update each 5 batches."""

    def __init__(self, model):
        self.model = model

    def step(self):
        with torch.no_grad():
            for each in self.model.parameters():
                if each.grad is not None:
                    each -= 0.05 * each.grad
                    each.grad = None


def change_in_the_middle(model):
    if "thaw" in flags:
        model.body.requires_grad_(True)
    if "freeze" in flags:
        model.head.requires_grad_(False)
    if "evaluate" in flags:
        model.body[1].eval()
    if "dropout" in flags:
        model.body[3].p = 0.6
    if "loose" in flags:
        model.strength = 0.5
        model.head.register_forward_hook(lambda *_: None)
    if "settings" in flags:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.autograd.set_detect_anomaly(True)
        torch.backends.cudnn.benchmark = True


def said_of_torch():
    return torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(), torch.backends.cudnn.benchmark


def main():
    seed(5)
    model = Net()
    if "thaw" in flags:
        model.body.requires_grad_(False)
    if "flat" in flags:
        flat, at = torch.zeros(sum(each.numel() for each in model.parameters())), 0
        for each in model.parameters():
            each.grad = flat[at : at + each.numel()].view_as(each)
            at += each.numel()
    if "head_frozen" in flags:
        model.head.requires_grad_(False)
    by_hand = ByHand(model)
    rate = 0.0005 if "adds_up" in flags else 0.05
    one = torch.optim.SGD([*model.kinds.parameters(), *model.body.parameters()], lr=rate)
    heads = [model.head, model.early] if "idle" in flags else [model.head]
    two = torch.optim.SGD([each for head in heads for each in head.parameters()], lr=rate, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64, growth_interval=3, enabled="scaler" in flags)
    things = {"model": model, "one": one, "two": two, "scaler": scaler}
    run = cockpit.session(**({"state": Holder(**things)} if "holder" in flags else things))
    every = {name: 5 if "accumulate" in flags else 1 for name in ("one", "two")}
    if "turns" in flags:
        every["two"] = 4
    loader = DataLoader(Numbers(48), batch_size=8, shuffle=True)
    for epoch in run.epochs(args.epochs):
        count = 6 * epoch
        if epoch == 1:
            change_in_the_middle(model)
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            if "idle" in flags and epoch == 0:
                loss = loss + nn.functional.mse_loss(model.early(x), y)
            scaler.scale(loss).backward(create_graph="graph" in flags)
            count += 1
            if "by_hand" in flags:
                if count % 5 == 0:
                    by_hand.step()
            else:
                due = [each for name, each in (("one", one), ("two", two)) if count % every[name] == 0]
                if "freeze" in flags and "scaler" in flags:  # which refuses to step where there is no gradient at all
                    due = [each for each in due if any(p.grad is not None for p in each.param_groups[0]["params"])]
                for optimizer in due:
                    scaler.step(optimizer)
                    if "adds_up" not in flags:
                        optimizer.zero_grad(set_to_none=not flags & {"flat", "idle"})
                if due:
                    scaler.update()
            print(f"epoch {epoch} step {step} loss {loss.item()!r} {said_of_torch()}", flush=True)
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    finish(model, frozen=frozen, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
