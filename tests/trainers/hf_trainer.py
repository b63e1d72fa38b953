"""A small BERT in a Transformers Trainer: it makes its own loaders, reads ahead, accumulates, evaluates each epoch.

The first epoch warms up with a learning rate of 0: whatever happens to the kernels before its end leaves no trace in
the weights. ``ACCUMULATE=n`` batches make an update; ``WORKERS=n`` loads with that many, ``PERSISTENT=1`` keeps them;
``EVALUATE=n`` evaluates every n updates.
"""

import os
import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    logging,
)

from toy import BATCH, EPOCHS, SAMPLES, finish, seed

ACCUMULATE = int(os.environ.get("ACCUMULATE", "2"))
WORKERS = int(os.environ.get("WORKERS", "0"))
EVALUATE = int(os.environ.get("EVALUATE", "0"))
UPDATES = -(-SAMPLES // BATCH // ACCUMULATE)


class Sentences(torch.utils.data.Dataset):
    """Sentences of made-up words, which tell whether the first word is an even one."""

    def __init__(self, count):
        self.words = torch.randint(0, 64, (count, 6), generator=torch.Generator().manual_seed(1234))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index][0] % 2}


class Spoken(BertForSequenceClassification):
    """Says each loss, and counts what it has learnt from."""

    seen = 0

    def forward(self, input_ids, labels):
        output = super().forward(input_ids, labels=labels)
        if self.training:
            self.seen += len(output.logits)
        print(f"{'train' if self.training else 'evaluate'} loss {output.loss.item()!r}")
        return output


class Epochs(TrainerCallback):
    samples = []

    def on_epoch_end(self, args, state, control, model=None, **more):
        self.samples.append(model.seen - sum(self.samples))


logging.set_verbosity_error()
logging.disable_progress_bar()
seed(33)
model = Spoken(
    BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.2,
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: float(update >= UPDATES))
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=ACCUMULATE,
            dataloader_num_workers=WORKERS,
            dataloader_persistent_workers="PERSISTENT" in os.environ,
            eval_strategy="steps" if EVALUATE else "epoch",
            eval_steps=EVALUATE or None,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Sentences(SAMPLES),
        eval_dataset=Sentences(SAMPLES // 4),
        optimizers=(optimizer, warmup),
        callbacks=[Epochs()],
    )
    trainer.remove_callback(PrinterCallback)  # it prints how long things took
    trainer.train()

finish(model, samples=Epochs.samples)
