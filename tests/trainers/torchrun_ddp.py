"""One rank of a DDP training over gloo, begun by ``torchrun``: DistributedSampler with set_epoch, and a soft stop.

Each rank keeps its own losses, samples and generator states; at the end the first prints those of all.
"""

import atexit
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed


class Shared(Numbers):
    """One rank may read its part from an open file, as on the machine that has the disk."""

    def __init__(self, count, rank):
        super().__init__(count)
        if os.environ.get("HOLDS_FILE") == str(rank):
            self.file = open(__file__)


def save_and_go(number, frame):
    # one whole line whatever the loop, or the other rank, is printing at that moment: print may not be entered twice
    os.write(1, f"\nrank {os.environ['RANK']} saves\n".encode())
    sys.exit(128 + number)


def main():
    signal.signal(signal.SIGTERM, save_and_go)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed(33 + rank)
    dataset = Shared(world * SAMPLES, rank)
    sampler = DistributedSampler(dataset, seed=33)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples, losses = [], hashlib.sha256()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        seen = 0
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
            losses.update(repr(loss.item()).encode())
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
        samples.append(seen)
    own = [samples, losses.hexdigest(), hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()]
    every = [None] * world
    dist.all_gather_object(every, own)
    if rank == 0:
        finish(model.module, samples=samples, ranks=every)
    dist.barrier()
    # torch's own exit after gloo aborts about one time in ten ("terminate called without an active exception")
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
