"""Two ranks that save into OUT and resume from ``--resume FILE``; rank 1 ends once in epoch 3 as HOW says."""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if chosen.resume:
        saved = torch.load(chosen.resume, weights_only=True)
        model.load_state_dict(saved["model"])
        first = saved["epoch"]
        print(f"rank {rank} resumed from epoch {first}", flush=True)
    for epoch in range(first, 6):
        for step in range(10):
            if (epoch, step, rank) == (3, 5, 1) and not chosen.resume:
                time.sleep(1)
                if os.environ.get("HOW") == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("rank one is unwell")
            optimizer.zero_grad()
            model(torch.randn(4, 8)).pow(2).mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "epoch": epoch + 1}, f"{os.environ['OUT']}/epoch-{epoch + 1}.pt")
        dist.barrier()
    print(f"rank {rank} is through", flush=True)
    dist.destroy_process_group()
