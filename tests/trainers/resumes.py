"""A training that saves into OUT after each epoch and resumes from ``--resume FILE``; crashes once at CRASH_AT."""

import argparse
import os
import signal
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import Numbers, seed

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    chosen = parser.parse_args()
    if os.environ.get("FAIL"):
        sys.exit(9)
    seed(5)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if chosen.resume:
        saved = torch.load(chosen.resume, weights_only=True)
        model.load_state_dict(saved["model"])
        first = saved["epoch"]
        print(f"resumed from epoch {first}", flush=True)
    for epoch in range(first, int(os.environ.get("EPOCHS", "6"))):
        for step, (x, y) in enumerate(DataLoader(Numbers(48), batch_size=8)):
            if f"{epoch}.{step}" == os.environ.get("CRASH_AT") and not chosen.resume:
                time.sleep(0.5)
                if os.environ.get("CUT"):
                    os.truncate(os.path.join(os.environ["OUT"], f"epoch-{epoch}.pt"), 700)
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        path = os.path.join(os.environ["OUT"], f"epoch-{epoch + 1}.pt")
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path)
