"""What no state_dict says goes along all the same: gradients that wait, what is frozen, what evaluates, torch's own."""

from __future__ import annotations

import copy
import itertools
import json
import time
from types import SimpleNamespace

import pytest
import torch
from fake_engine import ROOT, FakeEngine
from test_handoff_same import chain, check

from cockpit.probe.handoff.unsaid import Unsaid
from cockpit.probe.recorder import Recorder

MIDDLE = ROOT / "tests" / "trainers" / "middle.py"
GRADIENTS = ["", "adds_up", "accumulate", "turns", "accumulate scaler", "by_hand", "accumulate flat", "turns sparse"]
IDLE = [["idle"], ["idle", "turns", "freeze"], ["idle", "accumulate", "scaler", "holder"]]
CHANGES = ["", "thaw", "freeze", "evaluate dropout", "settings"]
EVERY = [
    f"{' '.join(each)} {('', 'holder')[number % 2]}".split()
    for number, each in enumerate(itertools.product(GRADIENTS, CHANGES))
]


@pytest.mark.parametrize(
    "flags",
    [
        ["accumulate", "thaw", "evaluate", "dropout"],
        ["adds_up"],
        *(pytest.param(f, marks=pytest.mark.long) for f in [*EVERY, *IDLE]),
    ],
)
def test_what_was_changed_in_the_middle_goes_on(forks, tmp_path, flags):
    """In an epoch that the next process does not see; updates lie across every hand-over."""
    bare, lives = chain(forks, tmp_path / "run", flags, ends=(2, 3, 5), script=MIDDLE)
    check(bare, lives)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("to_none", [False, True])
def test_what_the_model_uses_no_more_is_updated_as_long_as_it_was(kind, to_none):
    """By decay and momentum: an optimizer passes over what has no gradient, and not over one that is zero."""

    def made():
        torch.manual_seed(1)
        model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "early": torch.nn.Linear(2, 1)})
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, weight_decay=0.1)
        recorder = Recorder(time.perf_counter_ns, lambda: False)
        unsaid = Unsaid(torch, recorder, SimpleNamespace(setters={}, modules=list))
        unsaid.note({"model": model, "optimizer": optimizer})

        def step(*names):
            optimizer.zero_grad(set_to_none=to_none)
            sum(model[name](torch.ones(3, 2)).pow(2).mean() for name in names).backward()
            recorder.backwards += 1
            recorder.before_optimizer_step(optimizer, (), {})
            optimizer.step()
            recorder.after_optimizer_step(optimizer, (), {})

        return {"model": model, "optimizer": optimizer}, unsaid, step

    things, unsaid, step = made()
    step("used", "early")
    unsaid.epoch_begins(things)
    step("used")
    later, put, goes_on = made()
    state = unsaid.taken(things)
    assert bool(state["gradients"]) != to_none, "who sets to None lets nothing wait"
    for name, thing in later.items():
        thing.load_state_dict(copy.deepcopy(things[name].state_dict()))
    put.put(later, state)
    before = things["model"]["early"].weight.clone()
    for each in (step, goes_on):
        each("used")
    assert torch.equal(things["model"]["early"].weight, before) == to_none
    for name, tensor in things["model"].state_dict().items():
        assert torch.equal(tensor, later["model"].state_dict()[name]), name


def lives_of(forks, run_dir, first, second, start=None, told=None):
    """The first life, of two epochs, and the second; what each is told at its start."""
    (run_dir / "life-2").mkdir(parents=True)
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1, **(start or {})}))
    (run_dir / "life-2" / "start.json").write_text(json.dumps(told or {}))
    ran = forks.run(MIDDLE, "--epochs", 2, *first, run_dir=run_dir)
    assert ran.status == 0, ran.text
    return ran, forks.run(MIDDLE, "--epochs", 3, *second, run_dir=run_dir, life=2)


def final(ran):
    assert ran.status == 0, ran.text
    return json.loads(ran.own[-1].partition(" ")[2])


@pytest.mark.long
def test_what_cannot_go_along_is_told(forks, tmp_path):
    first, second = lives_of(forks, tmp_path / "run", ["loose"], ["loose"])
    assert not first.told and len(second.told) == 2
    words = "what the script changed while it trained, and is in no state_dict, begins anew: "
    assert second.told[1] == f"cockpit: {words}model.strength, model.head.forward_hooks."


@pytest.mark.long
def test_what_the_edited_script_sets_before_its_loop_stands(forks, tmp_path):
    """Only what was changed in the loop is put back."""
    flags = ["dropout", "accumulate"]
    _, second = lives_of(forks, tmp_path / "run", flags, [*flags, "head_frozen"])
    assert final(second)["frozen"] == ["head.weight", "head.bias"] and len(second.told) == 1


@pytest.mark.long
def test_what_cockpit_has_set_is_not_taken_for_the_scripts(forks, tmp_path):
    first, second = lives_of(forks, tmp_path / "run", [], [], {"set": {"threads": 2}})
    assert (final(first)["threads"], final(second)["threads"]) == (2, 1)


@pytest.mark.long
def test_gradients_that_no_other_process_can_have_are_refused_before(forks, tmp_path):
    run_dir, flags = tmp_path / "run", ["accumulate", "graph"]
    run_dir.mkdir()
    (run_dir / "start.json").write_text('{"handoff_every": 1}')
    engine = FakeEngine(run_dir / "s")
    ran = forks.run(MIDDLE, *flags, run_dir=run_dir)
    assert final(ran) == final(forks.run(MIDDLE, *flags))
    assert "waits for its optimizer and is part of a graph" in engine.wait("handoff", state="failed")["reason"]
    engine.close()


SETTINGS = [
    {"batch_size": 16},
    {"batch_size": 4, "num_workers": 1},
    {"autocast": "bf16"},
    {"threads": 2, "matmul": "medium"},
    {"compile": "default"},
    {"batch_size": 12, "autocast": "bf16", "num_workers": 2},
]


@pytest.mark.parametrize(
    ("knobs", "flags"),
    [
        ({"batch_size": 16, "autocast": "bf16"}, ["accumulate"]),
        *(pytest.param(each, flags, marks=pytest.mark.long) for each in SETTINGS for flags in ([], ["turns", "thaw"])),
    ],
)
def test_settings_in_force_are_so_from_the_first_step(forks, tmp_path, knobs, flags):
    """What a process waits for before it sets them (a whole epoch, a first step) the one before has shown."""
    told = json.dumps({"handoff_every": 1, "set": knobs})
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "start.json").write_text(told)
    whole = forks.run(MIDDLE, "--epochs", 5, *flags, run_dir=tmp_path / "whole")
    assert whole.status == 0 and whole.own != forks.run(MIDDLE, "--epochs", 5, *flags).own, whole.text
    run_dir, lives = tmp_path / "run", []
    for number, epochs in enumerate((3, 4, 5), 1):
        (folder := run_dir / f"life-{number}" if lives else run_dir).mkdir(parents=True)
        (folder / "start.json").write_text(told)
        lives.append(forks.run(MIDDLE, "--epochs", epochs, *flags, run_dir=run_dir, life=number if lives else None))
        assert lives[-1].status == 0, lives[-1].text
    printed = [line for ran in lives for line in ran.own if line.startswith("epoch")]  # beside torch's compiler
    assert [*printed, lives[-1].own[-1]] == [line for line in whole.own if line.startswith(("epoch", "FINAL"))]
