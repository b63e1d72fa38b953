"""Data, a model and a last line that the small trainings beside this file share, as people share a common.py.

Every training here is plain PyTorch that has never heard of any tool that may watch it. ``finish`` prints one
line, ``FINAL {...}``, with everything that a second run with the same seed must reproduce to the bit.
"""

import hashlib
import json
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

EPOCHS = int(os.environ.get("EPOCHS", "3"))
SAMPLES = int(os.environ.get("SAMPLES", "96"))
BATCH = 8
PAUSE_S = float(os.environ.get("PAUSE_S", "0"))


def seed(number=0):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


class Numbers(Dataset):
    """Vectors and their targets, made from the index alone: the same for every worker and every epoch."""

    def __init__(self, count=SAMPLES, width=8):
        generator = torch.Generator().manual_seed(1234)
        self.x = torch.randn(count, width, generator=generator)
        self.y = (self.x.sum(1, keepdim=True) * 0.5).sin()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if PAUSE_S:
            import time

            time.sleep(PAUSE_S)
        return self.x[index], self.y[index]


def mlp(width=8, out=1):
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, out))


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def finish(*models, samples=(), **more):
    weights = b"".join(
        name.encode() + value.detach().contiguous().numpy().tobytes()
        for model in models
        for name, value in sorted(model.state_dict().items())
    )
    numpy_state = np.random.get_state()
    final = {
        "weights": digest(weights),
        "keys": sorted(name for model in models for name in model.state_dict()),
        "torch": digest(torch.get_rng_state().numpy().tobytes()),
        "random": digest(repr(random.getstate()).encode()),
        "numpy": digest(repr((numpy_state[1].tolist(), numpy_state[2:])).encode()),
        "samples": list(samples),
        **more,
    }
    print("FINAL " + json.dumps(final, sort_keys=True), flush=True)
