"""A plain loop with Accelerate: all is prepared, gradients are accumulated, validation gathers, one epoch warms up.

Until the warm-up ends the learning rate is 0: whatever happens to the kernels before it leaves no trace in the weights.
``SKIP=n`` leaves out the first n batches of the second epoch, as a script does that resumes; ``DISPATCH=1`` lets the
first process read for all.
"""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed

ACCUMULATE = int(os.environ.get("ACCUMULATE", "2"))
SKIP = int(os.environ.get("SKIP", "0"))
UPDATES = SAMPLES // BATCH // ACCUMULATE


def validate(accelerator, model, loader):
    model.eval()
    found = []
    with torch.no_grad():
        for x, y in loader:
            predicted, wanted = accelerator.gather_for_metrics((model(x), y))
            found.append(nn.functional.mse_loss(predicted, wanted).item())
    model.train()
    return sum(found) / len(found)


seed(31)
accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=ACCUMULATE,
    dataloader_config=DataLoaderConfiguration(dispatch_batches="DISPATCH" in os.environ),
)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0")))
held_out = DataLoader(Numbers(SAMPLES // 4), batch_size=2 * BATCH)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: float(update >= UPDATES))
model, optimizer, loader, held_out, scheduler = accelerator.prepare(model, optimizer, loader, held_out, scheduler)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    batches = accelerator.skip_first_batches(loader, SKIP) if SKIP and epoch == 1 else loader
    for step, (x, y) in enumerate(batches):
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        seen += len(x)
        accelerator.print(f"epoch {epoch} step {step} loss {loss.item()!r}")
    samples.append(seen)
    accelerator.print(f"epoch {epoch} validation {validate(accelerator, model, held_out)!r}")

finish(accelerator.unwrap_model(model), samples=samples)
