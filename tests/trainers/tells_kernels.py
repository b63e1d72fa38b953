"""A plain training that prints, each epoch, what really was in force inside its forward, and its losses."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(96, 16, generator=generator), torch.randint(0, 4, (96,), generator=generator))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 32), nn.Linear(32, 4)
        self.seen = set()

    def forward(self, x):
        hidden = self.inner(x)
        if not torch.compiler.is_compiling():
            self.seen.add((str(hidden.dtype), torch.get_num_threads(), torch.get_float32_matmul_precision()))
        else:
            self.seen.add(("compiled",))
        return self.outer(hidden.relu())


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(int(sys.argv[1])):
    model.seen.clear()
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
    print(epoch, sorted(model.seen), out.dtype, "%.9f" % loss.item(), flush=True)
torch.save(model.state_dict(), sys.argv[2])
