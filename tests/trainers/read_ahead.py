"""Reads batches ahead in a thread, as prefetchers do; the training itself takes them from a queue."""

import queue
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


class ReadAhead:
    def __init__(self, loader, depth=2):
        self.loader, self.depth = loader, depth

    def __iter__(self):
        ready = queue.Queue(self.depth)

        def fill():
            for batch in self.loader:
                ready.put(batch)
            ready.put(None)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        while (batch := ready.get()) is not None:
            yield batch
        thread.join()


seed(12)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(12))
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (x, y) in enumerate(ReadAhead(loader)):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        seen += len(x)
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples)
