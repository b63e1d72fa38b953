"""model.compile() in place, and a compiled helper with a graph break that calls the model: counted by the backend."""

import os

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

graphs = []
backend = lookup_backend(os.environ.get("BACKEND", "aot_eager"))


def counting(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return backend(graph, inputs)


seed(36)
loader = DataLoader(Numbers(SAMPLES + 4), batch_size=BATCH, shuffle=True)
model = nn.Sequential(mlp(8, 8), nn.Dropout(0.1), mlp(8, 1))
model.compile(fullgraph=True, backend=counting)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


@torch.compile(backend=counting)
def penalty(model, x):
    norm = sum(parameter.square().sum() for parameter in model.parameters())
    torch._dynamo.graph_break()
    return 1e-4 * norm * model(x).mean()


samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y) + penalty(model, x)
        loss.backward()
        optimizer.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

with torch.no_grad():
    print("no grad", model.eval()(x).sum().item())
finish(
    model,
    samples=samples,
    graphs=graphs,
    frames=dict(counters["frames"]),
    breaks=len(counters["graph_break"]),
    unique_graphs=counters["stats"]["unique_graphs"],
)
