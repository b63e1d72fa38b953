"""Does to its process what long-lived scripts do: changes folder, forks, starts other Pythons, checks anomalies."""

import multiprocessing
import os
import subprocess
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


def double(number):
    return 2 * number


def main():
    seed(31)
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True)
    loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    os.chdir("/")
    samples = []
    for epoch in range(EPOCHS):
        seen = 0
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += len(x)
            print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
            if step == 3:
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    print("pool", pool.map(double, range(4)))
            if step == 5:
                child = os.fork()
                if child == 0:
                    os._exit(5)
                print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            if step == 7 and epoch == 0:
                words = subprocess.run(
                    [sys.executable, "-c", "import torch; print(torch.ones(2).sum().item())"],
                    capture_output=True,
                    text=True,
                )
                print("other python", words.returncode, words.stdout, words.stderr)
        samples.append(seen)
    print("threads of the script", [t.name for t in threading.enumerate() if t is threading.main_thread()])
    finish(model, samples=samples)


if __name__ == "__main__":
    main()
