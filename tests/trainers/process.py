"""A training in a process of its own: the parent starts it, then one that only evaluates, and trains nothing itself."""

import multiprocessing
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed


def train(weights):
    seed(41)
    loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
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
        samples.append(seen)
        if epoch == 0:
            torch.save(model.state_dict(), weights)
            evaluator = multiprocessing.get_context(METHOD).Process(target=evaluate, args=(weights,))
            evaluator.start()
            evaluator.join()
    finish(model, samples=samples)


def evaluate(weights):
    seed(42)
    model = mlp()
    model.load_state_dict(torch.load(weights))
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.mse_loss(model(x), y).item() for x, y in DataLoader(Numbers(), batch_size=BATCH)]
    print(f"evaluated to {sum(losses)!r}", flush=True)


METHOD = sys.argv[1] if len(sys.argv) > 1 else "spawn"

if __name__ == "__main__":
    weights = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"process-{os.getpid()}.pt")
    training = multiprocessing.get_context(METHOD).Process(target=train, args=(weights,))
    training.start()
    training.join()
    if os.path.exists(weights):
        os.remove(weights)
    sys.exit(training.exitcode)
