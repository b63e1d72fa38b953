"""torch.compile with fullgraph=True and a backend that counts the graphs it is handed. BACKEND picks what runs them."""

import os
import sys

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, seed

graphs = []
backend = lookup_backend(os.environ.get("BACKEND", "aot_eager"))


def counting(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return backend(graph, inputs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.first(x.to(torch.float32)))))


@torch.compile(fullgraph=True, backend=counting)
def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


seed(19)
loader = DataLoader(Numbers(SAMPLES + 4), batch_size=BATCH, shuffle=True)
model = Net()
compiled = torch.compile(model, fullgraph=True, backend=counting)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(compiled(x), y) + loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

finish(
    model,
    samples=samples,
    graphs=graphs,
    frames=dict(counters["frames"]),
    breaks=len(counters["graph_break"]),
    unique_graphs=counters["stats"]["unique_graphs"],
)
sys.stdout.flush()
