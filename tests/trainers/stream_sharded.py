"""A stream (iterable dataset) that shards itself among the workers, as the manual says."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed


class Stream(IterableDataset):
    def __init__(self):
        self.numbers = Numbers(SAMPLES)

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, len(self.numbers), step):
            x, y = self.numbers[index]
            yield {"x": x, "y": y, "index": index}


seed(9)
loader = DataLoader(Stream(), batch_size=BATCH)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples, indices = [], []
for epoch in range(EPOCHS):
    seen = []
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
        seen += batch["index"].tolist()
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(len(seen))
    indices.append(sorted(seen) == list(range(SAMPLES)))

finish(model, samples=samples, each_once=indices)
