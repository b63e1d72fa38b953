"""One of the ways in ways.py, trained: each step's loss and what it noticed, files and copies made on the way.

``train WAY STEPS FOLDER`` trains STEPS steps, then starts over from the first weights for one more epoch.
``load`` is another process that knows nothing of the first: it loads what was saved in each folder that it reads on
stdin, and trains it on.
"""

import copy
import json
import sys
import warnings
from pathlib import Path

import torch
import ways
from nets import SEEN
from torch.utils.data import DataLoader
from toy import Numbers, digest, seed

SAMPLES = 88
SAVE_EVERY = 9


def noticed():
    return str(SEEN.dtype).rpartition(".")[2], SEEN.compiled, torch.get_num_threads(), precision()


def precision():
    return torch.get_float32_matmul_precision()


def on(model, steps=3):
    """The losses of a model that was saved or copied, trained on by itself."""
    seed(5)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        x, y = torch.utils.data.default_collate([Numbers()[index] for index in range(8 * step, 8 * step + 8)])
        optimizer.zero_grad()
        out = model(x)
        loss = ((out.logits if hasattr(out, "logits") else out) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(way, steps, folder):
    """A list of facts, one a step; the copies that were made on the way; and what must be as without anybody."""
    seed(3)
    training = way()
    start, facts, copies = training.state(), [], {}
    loader = DataLoader(Numbers(SAMPLES), batch_size=8, shuffle=True)
    while len(facts) < steps:
        for x, y in loader:
            loss = training.step(x, y)
            facts.append((loss, *noticed()))
            if len(facts) % SAVE_EVERY == 0:
                model = training.model
                torch.save(model, folder / f"{way.__name__}-{len(facts)}-model.pt")
                torch.save(model.state_dict(), folder / f"{way.__name__}-{len(facts)}-state.pt")
                copies[len(facts)] = copy.deepcopy(model)
            if len(facts) == steps:
                break
        facts[-1] += (training.evaluate(x),)
    training.load(start)
    seed(4)
    again = [training.step(x, y) for x, y in loader]
    weights = [digest(value.numpy().tobytes()) for value in training.model.state_dict().values()]
    after = {
        "again": again,
        "weights": weights,
        "keys": list(training.model.state_dict()),
        "generator": digest(torch.get_rng_state().numpy().tobytes()),
        "copies": {number: on(model) for number, model in copies.items()},
    }
    return facts, after


def load(folder):
    """For each file: its losses when trained on, and the same of its state dict in a new model."""
    found = {}
    for path in sorted(folder.glob("*-model.pt")):
        name, number, _ = path.name.split("-")
        model = torch.load(path, weights_only=False)
        fresh = getattr(ways, name).net()
        fresh.load_state_dict(torch.load(folder / f"{name}-{number}-state.pt"))
        found[f"{name}-{number}"] = on(model), on(fresh)
    return found


if __name__ == "__main__":
    warnings.simplefilter("error")
    # torch's own, from tracing a module that gets another one's output: the script's own compile would die of it too
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor")
    torch.set_num_threads(1)
    if sys.argv[1] == "load":
        for line in sys.stdin:
            print(json.dumps(load(Path(line.strip()))), flush=True)
    else:
        ways.BACKEND = "inductor"
        way = next(way for way in ways.WAYS if way.__name__ == sys.argv[2])
        facts, after = train(way, int(sys.argv[3]), Path(sys.argv[4]))
        print(json.dumps({"facts": facts, "after": after}))
