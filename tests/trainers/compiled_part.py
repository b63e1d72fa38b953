"""The model is called as it is, and again inside functions that the script compiled whole; one layer has a hook.

Parts of a training are compiled like this for consistency losses and evaluation. No graph break is allowed in them.
"""

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

graphs = []
backend = lookup_backend("aot_eager")


def counting(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return backend(graph, inputs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        return self.body(x)


@torch.compile(fullgraph=True, backend=counting)
def consistency(model, x):
    return (model(x) - model(x + 0.01)).square().mean()


@torch.compile(fullgraph=True, backend=counting)
def evaluate(model, x, y):
    with torch.no_grad():
        return nn.functional.mse_loss(model(x), y)


seed(37)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
model = Net()
model.body[0].register_forward_hook(lambda module, inputs, output: None)
layer = nn.Linear(8, 1)
layer.register_forward_pre_hook(lambda module, inputs: None)
whole = torch.compile(nn.Sequential(layer), backend=counting)
optimizer = torch.optim.SGD([*model.parameters(), *whole.parameters()], lr=0.01)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x) + whole(x), y) + consistency(model, x)
        loss.backward()
        optimizer.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    print("evaluated", repr(evaluate(model, x, y).item()))
    samples.append(seen)

finish(
    model,
    samples=samples,
    graphs=graphs,
    frames=dict(counters["frames"]),
    breaks=len(counters["graph_break"]),
    unique_graphs=counters["stats"]["unique_graphs"],
)
