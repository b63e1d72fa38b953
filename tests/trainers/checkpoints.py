"""Keeps copies of everything: an averaged model, whole-model pickles, checkpoints, a traced and a scripted export."""

import copy
import inspect
import io
import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, digest, finish, mlp, seed


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)


class Own(nn.Module):
    """A module with its own idea of pickling, as people write them."""

    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        return self.body(x)

    def __getstate__(self):
        return dict(self.__dict__)

    def __setstate__(self, state):
        self.__dict__.update(state)


seed(30)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
model = Own()
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)
    twin = copy.deepcopy(model)
    back = saved(model)
    again = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
        moved = model(x)
        for parameter in model.parameters():
            parameter.sub_(1.0)
        same = [torch.equal(twin(x), other(x)) for other in (back, again)]
        print("copies agree", same, "and are their own", not torch.equal(twin(x), moved))
    print(
        "state",
        digest(b"".join(v.numpy().tobytes() for v in saved({"model": model.state_dict()})["model"].values())),
    )

copy.deepcopy(loader)
pickle.loads(pickle.dumps(loader))
print("traced", torch.equal(torch.jit.trace(model, x)(x), model(x)))
print("exported", torch.equal(torch.export.export(model, (x,)).module()(x), model(x)))
print("fx", len(torch.fx.symbolic_trace(model.body).graph.nodes))
print("loader", inspect.signature(DataLoader), sorted(loader.__dict__), DataLoader.__iter__.__name__)
print("backward", inspect.signature(torch.autograd.backward))
print("model", inspect.signature(nn.Module.__call__), [name for name in dir(model) if "cockpit" in name])
finish(model, average.module, samples=samples)
