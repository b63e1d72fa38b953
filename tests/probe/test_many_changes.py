"""Volume: a real training changed again and again, at boundaries and in the middle, trains as if it were not."""

from __future__ import annotations

import random

import pytest
from fake_engine import FakeEngine, bare_env, finish, launch, probe_env, script
from support.under import wait_until

TRAINING = """
    import os, random, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 240
        def __getitem__(self, index):
            time.sleep(0.0005)
            return torch.sin(torch.arange(4.0) + index), torch.tensor([float(index % 3)])

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(Rows(), batch_size=8, shuffle=True, **eval(sys.argv[1]))
    for epoch in range(int(sys.argv[2])):
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.002)
        print(epoch, repr(loss.item()), flush=True)
    print(torch.random.get_rng_state().sum().item(), random.random() != 0,
          [repr(p.double().sum().item()) for p in model.parameters()])
    fds, tasks = os.listdir("/proc/self/fd"), os.listdir("/proc/self/task")
    children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
    print("left over", len(fds) < 40, len(tasks) < 8, len(children) <= 5, file=sys.stderr)
    """


def answered(engine, name):
    """Whether the change is in force, or had nothing to bring into force."""
    return any(message["state"] in ("settling", "dropped") for message in engine.of("change", id=name))


def compare(tmp_path, own, epochs, changes, seed):
    path, run = script(tmp_path, TRAINING), tmp_path / "run"
    run.mkdir()
    engine = FakeEngine(run / "s")
    arguments = (repr(own), str(epochs))
    ours = launch(path, probe_env(run, {}), *arguments)
    draw = random.Random(seed)
    asked = 0
    engine.wait("tick")
    while ours.poll() is None and asked < changes:
        workers = draw.choice([0, 1, 2, 3])
        knobs = {"num_workers": workers}
        if workers and draw.random() < 0.5:
            knobs["prefetch_factor"] = draw.choice([1, 2, 4])
        if workers and draw.random() < 0.3:
            knobs["persistent_workers"] = draw.choice([True, False])
        name = f"c{asked}"
        try:
            engine.ask(name, now=draw.random() < 0.6, **knobs)
            asked += 1
            wait_until(lambda name=name: answered(engine, name) or ours.poll() is not None, name, 20, 0.02)
        except OSError:
            if ours.poll() is None:
                raise
    out, err = finish(ours, 240)
    bare_out, _ = finish(launch(path, bare_env(), *arguments), 240)
    assert out == bare_out
    assert err == "left over True True True\n"
    states = {}
    for message in engine.of("change"):
        states.setdefault(message["id"], []).append(message["state"])
    landed = [s for s in list(states.values())[:-1] if s != ["dropped"]]  # what is in force already lands on nobody
    assert all(s[:2] == ["applying", "settling"] for s in landed), states
    assert not any(m["off"] for m in engine.of("hello"))
    assert {(e["steps"], e["samples"]) for e in engine.of("epoch")} == {(30, 240)}
    return len(landed)


def test_a_handful_of_changes(tmp_path):
    assert compare(tmp_path, {}, 8, 5, seed=1) >= 3


@pytest.mark.long
@pytest.mark.parametrize("own", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_many_changes(tmp_path, own):
    assert compare(tmp_path, own, 80, 60, seed=2) >= 30
