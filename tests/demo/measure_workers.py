"""Measures what loader workers give the demo's training: blocks of 0, N, 0, N … 0 workers in one process.

Run by the test and by hand; prints one JSON object: samples/s of each block and the ratio of each N block to the mean
of its two neighbours. Loads the demo from its own folder, as the command does, and never the cockpit.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "demo"))
import train
from torch.utils.data import DataLoader


def measure_block(dataset: train.Shapes, workers: int, batches: int) -> float:
    """Samples/s over ``batches`` steps after those that the workers made while starting."""
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=workers)
    ready_ahead = 2 * workers + 2
    iterator = iter(loader)
    net, loss_of = train.make_net(), torch.nn.functional.cross_entropy
    optimizer = torch.optim.AdamW(net.parameters())
    start = 0.0
    for step in range(ready_ahead + batches):
        if step == ready_ahead:
            start = time.perf_counter()
        pictures, labels = next(iterator)
        optimizer.zero_grad()
        loss_of(net(pictures), labels).backward()
        optimizer.step()
    return batches * 16 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store-ms", type=float, default=6.0)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    dataset = train.Shapes(args.data, args.store_ms)
    without = [measure_block(dataset, 0, batches=12)]
    having = []
    for _ in range(args.rounds):
        having.append(measure_block(dataset, args.workers, batches=24))
        without.append(measure_block(dataset, 0, batches=12))
    ratios = [rate * 2 / sum(without[at : at + 2]) for at, rate in enumerate(having)]
    print(json.dumps({"without": without, "having": having, "ratios": ratios}))


if __name__ == "__main__":
    main()
