"""A LightningModule in a Lightning Trainer: training_step calls an encoder and a head, nobody calls the module itself.

The Trainer looks at two validation batches before it trains, and validates after each epoch. The first epoch warms up
with a learning rate of 0: whatever happens to the kernels before its end leaves no trace in the weights.
``ACCUMULATE=n`` accumulates gradients, ``LIMIT=n`` ends each epoch after n batches, ``DEVICES=2`` makes two ranks.
"""

import logging
import os
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, seed

ACCUMULATE = int(os.environ.get("ACCUMULATE", "1"))
LIMIT = int(os.environ.get("LIMIT", "0")) or None
WORKERS = int(os.environ.get("WORKERS", "0"))
UPDATES = -(-(LIMIT or SAMPLES // BATCH) // ACCUMULATE)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 1)
        self.samples = []

    def loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.head(self.encoder(x)), y)

    def on_train_epoch_start(self):
        self.samples.append(0)

    def training_step(self, batch, step):
        loss = self.loss(batch)
        self.samples[-1] += len(batch[0])
        self.log("train", loss)
        print(f"epoch {self.current_epoch} step {step} loss {loss.item()!r}")
        return loss

    def validation_step(self, batch, step):
        print(f"epoch {self.current_epoch} validation {self.loss(batch).item()!r}")

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: float(update >= UPDATES))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warmup, "interval": "step"}}


warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
seed(32)
model = Regression()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ.get("DEVICES", "1")),
    max_epochs=EPOCHS,
    accumulate_grad_batches=ACCUMULATE,
    limit_train_batches=LIMIT,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    model,
    DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=WORKERS > 0),
    DataLoader(Numbers(SAMPLES // 4), batch_size=BATCH),
)
if trainer.is_global_zero:
    finish(model, samples=model.samples)
