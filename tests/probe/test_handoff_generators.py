"""Generators of the script's own and its plain variables go along where they are given, as the README says."""

from __future__ import annotations

import json
import random

import pytest
import torch
from fake_engine import ROOT, script

from cockpit.probe.handoff.generators import go_on, stateful

SOURCE = """
    import random
    import numpy as np
    import torch
    import cockpit

    class Kept(dict): state_dict, load_state_dict = dict.copy, dict.update

    count = Kept(best=9.9, bad=0)
    own = {{"a": torch.Generator().manual_seed(1), "b": np.random.default_rng(2), "c": np.random.RandomState(3),
           "d": random.Random(4)}}
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = cockpit.session(model=model, optimizer=optimizer, count=count, **own)

    def drawn():
        return torch.rand(1, generator=own["a"]).item(), own["b"].random(), own["c"].rand(), own["d"].random()

    print("first lines", drawn())
    for epoch in run.epochs({epochs}):
        for x in torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=4):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        count["bad"] += 1
        print("epoch", epoch, dict(count), drawn())
"""


def test_they_go_on_where_they_stood(forks, tmp_path):
    assert "class Kept(dict): state_dict, load_state_dict = dict.copy, dict.update" in (ROOT / "README.md").read_text()
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1}))
    whole = forks.run(script(tmp_path, SOURCE.format(epochs=4)))
    first = forks.run(script(tmp_path, SOURCE.format(epochs=2)), run_dir=run_dir)
    second = forks.run(script(tmp_path, SOURCE.format(epochs=4)), run_dir=run_dir, life=2)
    epochs = [line for line in whole.own if line.startswith("epoch")]
    assert len(epochs) == 4 and [line for line in first.own if line.startswith("epoch")] == epochs[:2], first.text
    assert [line for line in second.own if line.startswith("epoch")] == epochs[2:], second.text


class WithBoth(torch.nn.Linear):
    def get_state(self):
        raise AssertionError("it has a state_dict")

    set_state = get_state


@pytest.mark.parametrize("thing", [torch.nn.Linear(1, 1), WithBoth(1, 1), 3, None, object(), [1], {}])
def test_all_else_is_what_it_is(thing):
    assert stateful(thing) is thing


def test_what_was_never_restored_is_left_alone():
    own = random.Random(4)
    thing = stateful(own)
    state = thing.state_dict()
    own.random()
    after = own.getstate()
    go_on({"thing": thing, "other": WithBoth(1, 1)})
    assert own.getstate() == after
    thing.load_state_dict(state)
    own.random()
    go_on({"thing": thing})
    assert own.getstate() == state["state"]
    own.random()
    go_on({"thing": thing})
    assert own.getstate() == after, "once"
