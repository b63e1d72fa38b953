"""Sentences of unequal length, bucketed by a batch sampler of its own and padded by a collate function."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from toy import BATCH, EPOCHS, SAMPLES, finish, seed


class Sentences(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(7)
        self.lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
        self.words = [torch.randint(1, 50, (length,), generator=generator) for length in self.lengths]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return words, float(words.sum() % 2)


class Buckets:
    """Batches of sentences of like length, at most so many words in each, in random order."""

    def __init__(self, lengths, most_words):
        self.lengths, self.most_words = lengths, most_words

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda index: (self.lengths[index], random.random()))
        batches, batch = [], []
        for index in order:
            if batch and (len(batch) + 1) * self.lengths[index] > self.most_words:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
        random.shuffle(batches)
        yield from batches


def collate(items):
    words, targets = zip(*items)
    return {"words": pad_sequence(words, batch_first=True), "target": torch.tensor(targets)}


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(50, 16, mode="mean", padding_idx=0)
        self.head = nn.Linear(16, 1)

    def forward(self, words):
        return self.head(self.embedding(words)).squeeze(1)


seed(7)
dataset = Sentences(SAMPLES)
loader = DataLoader(dataset, batch_sampler=Buckets(dataset.lengths, 8 * BATCH), collate_fn=collate)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch["words"]), batch["target"])
        loss.backward()
        optimizer.step()
        seen += len(batch["target"])
        print(f"epoch {epoch} step {step} of {tuple(batch['words'].shape)} loss {loss.item()!r}")
    samples.append(seen)

finish(model, samples=samples)
