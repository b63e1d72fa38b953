"""Ways of training that people write, one class a way; model_shapes.py beside this file runs them.

``step`` does one training step and returns the loss, ``evaluate`` a number that the weights decide.
"""

import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from nets import (
    CheckpointedNet, CopyNet, DropNet, Head, MethodNet, Net, OutputNet, ReduceNet, ReentrantNet, StateNet,
)  # fmt: skip


class Plain:
    """The way that everything below differs from in one thing."""

    net = Net

    def __init__(self):
        self.model = self.net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.prepare()

    def prepare(self):
        pass

    def called(self, x):
        return self.model(x)

    def loss(self, x, y):
        return nn.functional.mse_loss(self.called(x), y)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluate(self, x):
        self.model.eval()
        with torch.no_grad():
            value = self.called(x).float().numpy().sum()
        self.model.train()
        return float(value)

    def state(self):
        return copy.deepcopy({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()})

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))


class Dropout(Plain):
    net = DropNet


class Inference(Plain):
    """Looks at the model in inference mode, as metrics libraries do."""

    def evaluate(self, x):
        self.model.eval()
        with torch.inference_mode():
            value = self.model(x).numpy().sum()
        self.model.train()
        return float(value)


class OwnAutocast(Plain):
    enabled = True

    def loss(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
            out = self.model(x)
        return nn.functional.mse_loss(out.float(), y)


class OwnAutocastOff(OwnAutocast):
    enabled = False


class Scaled(Plain):
    """A GradScaler, as scripts have it that can do fp16."""

    scales = True

    def prepare(self):
        self.scaler = torch.amp.GradScaler("cpu", enabled=self.scales, init_scale=256.0)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


class ScaledOff(Scaled):
    scales = False


class CompiledModule(Plain):
    def prepare(self):
        self.compiled = torch.compile(self.model, backend=BACKEND)

    def called(self, x):
        return self.compiled(x)


class CompiledInPlace(Plain):
    def prepare(self):
        self.model.compile(backend=BACKEND)


class CompiledStep(Plain):
    def prepare(self):
        self.compiled = torch.compile(super().loss, backend=BACKEND)

    def loss(self, x, y):
        return self.compiled(x, y)


class CompiledOptimizer(Plain):
    def prepare(self):
        self.take = torch.compile(self.optimizer.step, backend=BACKEND)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.take()
        return loss.item()


class InBackward(Plain):
    """Each parameter has an optimizer that steps as soon as its gradient is there."""

    def prepare(self):
        self.each = {p: torch.optim.SGD([p], lr=0.02) for p in self.model.parameters()}
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        self.each[parameter].step()
        self.each[parameter].zero_grad()

    def step(self, x, y):
        loss = self.loss(x, y)
        loss.backward()
        return loss.item()


class Lbfgs(Plain):
    def prepare(self):
        self.optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=3, line_search_fn="strong_wolfe")

    def step(self, x, y):
        def closure():
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            return loss

        return self.optimizer.step(closure).item()


class Checkpointed(Plain):
    net = CheckpointedNet


class Reentrant(Plain):
    net = ReentrantNet


class CheckpointedCall(Plain):
    """The loop itself calls the whole model through checkpointing."""

    def called(self, x):
        return checkpoint(self.model, x, use_reentrant=False)


class Average(Plain):
    """A moving average of the weights in a deep copy, which evaluates, and is made anew now and then."""

    def prepare(self):
        self.average, self.steps = copy.deepcopy(self.model), 0

    def step(self, x, y):
        loss = super().step(x, y)
        self.steps += 1
        if self.steps % 7 == 0:
            self.average = copy.deepcopy(self.model)
        with torch.no_grad():
            for ours, theirs in zip(self.average.state_dict().values(), self.model.state_dict().values()):
                ours.copy_(theirs if ours.dtype == torch.long else ours.lerp(theirs, 0.3))
        return loss

    def evaluate(self, x):
        with torch.no_grad():
            return float(self.average.eval()(x).sum())


class OwnState(Plain):
    net = StateNet


class OwnReduce(Plain):
    net = ReduceNet


class OwnCopy(Plain):
    net = CopyNet


class Parallel(Plain):
    def prepare(self):
        self.wrapper = nn.DataParallel(self.model)

    def called(self, x):
        return self.wrapper(x)


class Outputs(Plain):
    net = OutputNet

    def called(self, x):
        return self.model(x).logits

    def loss(self, x, y):
        return self.model(x, labels=y).loss


class Method(Plain):
    """The model is called through a method of its own: what is called as modules is inside it."""

    net = MethodNet

    def loss(self, x, y):
        return self.model.loss(x, y)


class Forward(Plain):
    """``model.forward(x)``, as beginners write."""

    def called(self, x):
        return self.model.forward(x)


class Two(Plain):
    """Encoder and head, two optimizers, as in adversarial trainings."""

    def prepare(self):
        self.head = Head()
        self.second = torch.optim.SGD(self.head.parameters(), lr=0.02)

    def called(self, x):
        return self.head(self.model(x))

    def step(self, x, y):
        self.second.zero_grad()
        loss = super().step(x, y)
        self.second.step()
        return loss

    def state(self):
        return {**super().state(), "head": copy.deepcopy(self.head.state_dict())}

    def load(self, state):
        super().load(state)
        self.head.load_state_dict(state["head"])


class Late(Two):
    """The head joins after the first three steps."""

    steps = 0

    def called(self, x):
        if self.steps < 3:
            return self.model(x)
        return self.head(self.model(x))

    def step(self, x, y):
        loss = super().step(x, y)
        self.steps += 1
        return loss


BACKEND = "eager"

WAYS = (
    Plain, Dropout, Inference, OwnAutocast, OwnAutocastOff, Scaled, ScaledOff, CompiledModule, CompiledInPlace,
    CompiledStep, CompiledOptimizer, InBackward, Lbfgs, Checkpointed, Reentrant, CheckpointedCall, Average, OwnState,
    OwnReduce, OwnCopy, Parallel, Outputs, Method, Forward, Two, Late,
)  # fmt: skip  # fmt: skip
