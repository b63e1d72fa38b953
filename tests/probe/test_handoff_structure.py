"""What is said of things that were rebuilt since ``cockpit.session``, and what torch says when it loads them anew.

The two must agree: each kind of thing is trained, its state is loaded into one made by the same lines, and that fails
exactly where it was said to. A state that merely grows (moments, counts, what a first forward makes) is no rebuilding.
"""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim import lr_scheduler, swa_utils

from cockpit.probe.handoff.structure import CANNOT, MAY_NOT, Structure

LONG = functools.partial(pytest.param, marks=pytest.mark.long)
X = torch.linspace(-1, 1, 128).reshape(16, 8)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def things(model=None, kind=torch.optim.SGD, schedule=None, parameters=None, **more):
    model = net() if model is None else model
    optimizer = kind(model.parameters() if parameters is None else parameters(model), lr=0.01)
    found = {"model": model, "optimizer": optimizer, **{name: make(model) for name, make in more.items()}}
    return found if schedule is None else {**found, "scheduler": schedule(optimizer)}


def trained(found) -> None:
    model, optimizer, scheduler = found["model"], found["optimizer"], found.get("scheduler")

    def closure():
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        loss = optimizer.step(closure)
        if scheduler is not None:
            scheduler.step(*([loss.detach()] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        if "averaged" in found:
            found["averaged"].update_parameters(model)


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(8, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Remembers(nn.Module):
    """``late``: a buffer that its first forward makes; ``passing``: it is in no state; ``queue``: one that grows."""

    def __init__(self, late=False, passing=False, queue=False):
        super().__init__()
        self.layer, self.kinds = nn.Linear(8, 4), (late, passing, queue)
        self.register_buffer("seen", None, persistent=not passing)
        self.register_buffer("queue", torch.zeros(0, 4))

    def forward(self, x):
        late, passing, queue = self.kinds
        y = self.layer(x)
        if late or passing:
            self.seen = x.mean(0)
        if queue:
            self.queue = torch.cat([self.queue, y.detach()])
        return y


class TakesAny(Remembers):
    def _load_from_state_dict(self, state, prefix, *more):
        self.queue = torch.zeros_like(state[prefix + "queue"])
        super()._load_from_state_dict(state, prefix, *more)


class OwnLoading(torch.optim.SGD):
    def load_state_dict(self, state):
        for _ in state["param_groups"][len(self.param_groups) :]:
            self.add_param_group({"params": [nn.Parameter(torch.zeros(1)) for _ in range(2)]})
        super().load_state_dict(state)


def head_only(model):
    return model[3].parameters()


def unfrozen(found):
    found["optimizer"].add_param_group({"params": list(found["model"][0].parameters())})


def longer(found):
    found["optimizer"].param_groups[0]["params"] += list(found["model"][0].parameters())


def put(at, make):
    def change(found):
        found["model"][at] = make(found["model"][at])

    return change


def called(function, *args):
    return lambda found: function(found["model"][0], *args)


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(things, kind=torch.optim.Adam, schedule=lambda o: lr_scheduler.StepLR(o, 2)),
        functools.partial(things, lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 2))),
        functools.partial(things, averaged=lambda m: swa_utils.AveragedModel(m, use_buffers=True)),
        LONG(functools.partial(things, lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 4))))),
        LONG(functools.partial(things, lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 4))))),
        LONG(functools.partial(things, lambda: Adapted(nn.Linear(8, 4)))),
        LONG(functools.partial(things, lambda: nn.DataParallel(net()))),
        LONG(functools.partial(things, lambda: torch.compile(net(), backend="eager"))),
        LONG(functools.partial(things, lambda: torch.jit.script(net()))),
        LONG(functools.partial(things, scaler=lambda m: torch.amp.GradScaler("cpu"))),
        functools.partial(things, functools.partial(Remembers, passing=True)),
        *(
            LONG(functools.partial(things, kind=getattr(torch.optim, name)), id=name)
            for name in (
                "AdamW",
                "Adagrad",
                "Adadelta",
                "Adamax",
                "ASGD",
                "NAdam",
                "RAdam",
                "RMSprop",
                "Rprop",
                "LBFGS",
            )
        ),
        *(
            LONG(functools.partial(things, schedule=schedule))
            for schedule in (
                lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
                lr_scheduler.ReduceLROnPlateau,
                lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, cycle_momentum=False),
                lambda o: lr_scheduler.SequentialLR(
                    o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]
                ),
                lambda o: swa_utils.SWALR(o, 0.01),
            )
        ),
    ],
)
def test_what_merely_trains_is_never_refused(make) -> None:
    first, fresh = make_of(make), make_of(make)
    structure = Structure(torch, first)
    trained(first)
    assert not structure.look() and (structure.cannot, structure.doubt) == (None, None)
    for name, thing in fresh.items():
        thing.load_state_dict(copy.deepcopy(first[name].state_dict()))


def make_of(make):
    """``things`` with a model of its own each time."""
    words = dict(make.keywords)
    return things(*(each() for each in make.args), **words)


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        ({"parameters": head_only}, unfrozen, "optimizer has 2 parameter groups now and had 1 when"),
        ({"parameters": head_only}, longer, "group 0 of optimizer holds 4 parameters now and held 2 when"),
        ({}, put(0, Adapted), "model has no 0.weight any more and had it when"),
        ({}, put(3, lambda old: nn.Linear(8, 10)), "3.weight of model is 10×8 now and was 4×8 when"),
        ({}, put(2, lambda old: nn.BatchNorm1d(8)), "model has 2.weight now and had not when"),
        LONG({}, called(prune.l1_unstructured, "weight", 0.5), "model has no 0.weight any more"),
        LONG({}, called(parametrizations.orthogonal), "model has no 0.weight any more"),
        LONG({}, called(lambda layer: parametrize.register_parametrization(layer, "bias", nn.Identity())), "0.bias"),
        ({"model": functools.partial(Remembers, late=True)}, None, "model has seen now and had not when"),
        LONG({"model": functools.partial(Remembers, queue=True)}, None, "queue of model is 48×4 now and was 0×4"),
    ],
)
def test_what_was_rebuilt_is_named_where_torch_would_not_load_it(make, change, words) -> None:
    def new():
        more = dict(make)
        return things(*([more.pop("model")()] if "model" in more else []), **more)

    first, fresh = new(), new()
    structure = Structure(torch, first)
    if change is not None:
        change(first)
    trained(first)
    assert structure.look() and words in (structure.cannot or "") and structure.cannot.endswith(CANNOT)
    name = "optimizer" if "optimizer" in words else "model"
    with pytest.raises((RuntimeError, ValueError)):
        fresh[name].load_state_dict(first[name].state_dict())
    assert not structure.look(), "it is told once"


@pytest.mark.parametrize(
    ("make", "change"),
    [
        ({"parameters": head_only, "kind": OwnLoading}, unfrozen),
        ({"model": functools.partial(TakesAny, queue=True)}, None),
    ],
)
def test_where_the_script_loads_in_its_own_way_it_is_only_told(make, change) -> None:
    more = dict(make)
    first = things(*([more.pop("model")()] if "model" in more else []), **more)
    structure = Structure(torch, first)
    if change is not None:
        change(first)
    trained(first)
    assert structure.look() and structure.cannot is None and (structure.doubt or "").endswith(MAY_NOT)


def test_what_is_as_it_was_again_can_be_handed_over_again() -> None:
    first = things()
    structure, layer = Structure(torch, first), first["model"][0]
    first["model"][0] = Adapted(layer)
    assert structure.look() and structure.cannot
    first["model"][0] = layer
    assert structure.look() and structure.cannot is None


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (torch.optim.Adam, ("model",), "the script's Adam was not given to cockpit.session"),
        (torch.optim.Adam, ("model", "scheduler"), "the script's Adam was not given to cockpit.session"),
        (torch.optim.Adam, ("model", "optimizer", "scheduler"), None),
        (torch.optim.SGD, ("model", "optimizer"), "the scheduler of optimizer was not given to cockpit.session"),
        (torch.optim.SGD, ("model",), None),
    ],
)
def test_what_sets_or_takes_steps_and_was_not_given_is_told(kind, given, told) -> None:
    everything = things(kind=kind, schedule=lambda o: lr_scheduler.StepLR(o, 2))
    structure = Structure(torch, {name: everything[name] for name in given}, lambda: [everything["optimizer"]])
    if told is None or "scheduler of" not in told:
        assert not structure.look(), "none has stepped"
    trained(everything)
    assert structure.look() is (told is not None)
    assert structure.cannot is None and (structure.doubt or "").startswith(told or "\0") is (told is not None)


def test_a_scheduler_that_an_object_of_the_scripts_own_holds_is_not_missed() -> None:
    everything = things(schedule=lambda o: lr_scheduler.StepLR(o, 2))
    held = SimpleNamespace(inner=everything.pop("scheduler"))
    structure = Structure(torch, {**everything, "schedule": held}, lambda: [everything["optimizer"]])
    assert not structure.look() and structure.doubt is None
    structure = Structure(torch, everything, lambda: [everything["optimizer"]])
    assert structure.look() and "scheduler" in str(structure.doubt)


def test_an_object_of_the_scripts_own_may_hold_it() -> None:
    class Holds(nn.Linear):
        def state_dict(self, *more, **words):
            return super().state_dict(*more, **words)

    everything = things(kind=torch.optim.Adam)
    structure = Structure(torch, {"model": Holds(1, 1)}, lambda: [everything["optimizer"]])
    trained(everything)
    assert not structure.look() and structure.doubt is None
