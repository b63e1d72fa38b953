"""One iterator for all epochs, read one batch ahead, with a validation after each: timm's --use-multi-epochs-loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


class Repeat:
    """The same batch sampler, over and over."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


class MultiEpochs(DataLoader):
    """Its workers go on with the next epoch while the last batches of this one are trained on."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._DataLoader__initialized = False
        self.batch_sampler = Repeat(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


def one_ahead(loader):
    current = None
    for upcoming in loader:
        if current is not None:
            yield current
        current = upcoming
    yield current


seed(7)
loader = MultiEpochs(Numbers(), batch_size=BATCH, shuffle=True, num_workers=1)
held_out = DataLoader(Numbers(32), batch_size=BATCH)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

samples = []
for epoch in range(EPOCHS):
    samples.append(0)
    model.train()
    for step, (x, y) in enumerate(one_ahead(loader)):
        samples[-1] += len(x)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    model.eval()
    with torch.no_grad():
        print(f"epoch {epoch} held out {sum(nn.functional.mse_loss(model(x), y).item() for x, y in held_out)!r}")

finish(model, samples=samples)
