"""Two ranks started by torch.multiprocessing.spawn, with DDP over gloo: the parent never trains."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from toy import BATCH, EPOCHS, SAMPLES, Numbers, finish, mlp, seed


def train(rank, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    seed(32)
    dataset = Numbers(2 * SAMPLES)
    sampler = DistributedSampler(dataset, seed=32)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        seen = 0
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
        samples.append(seen)
    if rank == 0:
        finish(model.module, samples=samples)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(os.path.join(folder, "meet"),), nprocs=2)
    sys.exit(0)
