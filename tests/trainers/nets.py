"""Models as people write them; ways.py beside this file trains them.

``SEEN`` is what a script notices of its own forward: the dtype inside, and whether it runs compiled.
"""

from collections import OrderedDict
from dataclasses import dataclass, fields

import copy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Seen:
    """Of the last forward with gradients."""

    dtype = None
    compiled = None


SEEN = Seen()


def notice(hidden):
    if torch.is_grad_enabled():
        SEEN.dtype = hidden.dtype
        SEEN.compiled = torch.compiler.is_compiling()


class Layer(nn.Module):
    """Linear, batch norm, relu; notices how it runs."""

    def __init__(self, width=8, out=16):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, out), nn.BatchNorm1d(out)

    def forward(self, x):
        hidden = self.linear(x)
        notice(hidden)
        return torch.relu(self.norm(hidden))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = Layer(), nn.Linear(16, 1)

    def forward(self, x):
        return self.outer(self.inner(x))


class Head(nn.Module):
    """What a second module adds to the first."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x):
        out = self.linear(x)
        notice(out)
        return out


class DropNet(Net):
    def forward(self, x):
        return self.outer(nn.functional.dropout(self.inner(x), 0.1, self.training))


class CheckpointedNet(nn.Module):
    """What is computed again in backward notices nothing."""

    reentrant = False

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.outer = nn.Linear(16, 1)

    def forward(self, x):
        hidden = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        notice(hidden)
        return self.outer(hidden)


class ReentrantNet(CheckpointedNet):
    reentrant = True

    def forward(self, x):
        return super().forward(x.clone().requires_grad_())


class StateNet(Net):
    def __getstate__(self):
        return dict(self.__dict__)


class ReduceNet(Net):
    def __reduce__(self):
        return rebuilt, (ReduceNet, dict(self.__dict__))


class CopyNet(Net):
    def __deepcopy__(self, memo):
        return rebuilt(CopyNet, {name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})


def rebuilt(kind, attributes):
    module = kind.__new__(kind)
    module.__dict__.update(attributes)
    return module


@dataclass
class Output(OrderedDict):
    """Items and attributes in step, as the outputs of language models are."""

    loss: object = None
    logits: object = None

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class OutputNet(Net):
    def forward(self, x, labels=None):
        logits = super().forward(x)
        loss = None if labels is None else nn.functional.mse_loss(logits.float(), labels)
        return Output(loss=loss, logits=logits)


class MethodNet(Net):
    def loss(self, x, y):
        return nn.functional.mse_loss(self.outer(self.inner(x)), y)
