"""One whole state: the script's things, random states, loaders, counts. Made for a hand-off, and taken apart again.

Called by ``live`` at the end of an epoch and where the loop of the next process begins, in the script's thread.
"""

from __future__ import annotations

from typing import Any

from ..guard import attempt
from ..recorder import Recorder
from ..registry import Registry
from ..streams import LoaderRecord
from . import randomness
from .beginning import drawn_anew
from .contents import Contents, contents_of
from .folder import Refused, first_line
from .loaders import LoaderStates
from .unsaid import Unsaid


def gathered(
    torch: Any, things: dict[str, Any], recorder: Recorder, registry: Registry, loaders: LoaderStates, unsaid: Unsaid
) -> tuple[dict[str, Any], Contents]:
    """The state, and what is in it. Raises Refused where one of the things does not give its own."""
    random = randomness.taken(torch)  # first: code of the script's runs below
    states = {}
    for name, thing in things.items():
        states[name], error = attempt(thing.state_dict)
        if error is not None:
            raise Refused("%s gave no state: %s" % (name, first_line(error)))
    beside = unsaid.taken(things)
    whole = {
        "things": states, "random": random, "loaders": loaders.taken(), "counts": counted(recorder, registry),
        "unsaid": beside,
    }  # fmt: skip
    contents, error = attempt(contents_of, torch, whole)
    if contents is None:
        waiting = {"what waits for its optimizer, " + name: each for name, each in beside["gradients"].items()}
        for name, state in {**states, **waiting}.items():
            _, own = attempt(contents_of, torch, state, False)
            if own is not None:
                raise Refused("the state of %s cannot be pickled: %s" % (name, first_line(own)))
        raise Refused("it cannot be pickled: %s" % first_line(error))
    return whole, contents


def counted(recorder: Recorder, registry: Registry) -> dict[str, Any]:
    """Steps and epochs so far, as if whatever is still open had ended: it will not be gone on with."""
    pending = bool(recorder.updates and recorder.base is not None)
    records = registry.records.values()
    loaders = {each.id: [each.epochs_before, each.epochs_begun() - each.epochs_before] for each in records}
    return {
        "steps": recorder.steps + pending,
        "optimizer_steps": recorder.optimizer_steps,
        "epoch": max([recorder.epoch, *(before + own for before, own in loaders.values() if own)]),
        "loaders": loaders,
        "batch_sizes": {each.id: size for each in records if (size := _kept_size(each)) is not None},
    }


def _kept_size(record: LoaderRecord) -> int | None:
    """The batch size in force beside the script's own, once a whole epoch has shown that the loop takes it."""
    batch = record.batch
    if batch is None or record.trial is not None or not record.used_up or batch.in_force == batch.script:
        return None
    return int(batch.in_force)


def put(
    torch: Any, state: dict[str, Any], things: dict[str, Any], recorder: Recorder, registry: Registry,
    loaders: LoaderStates, unsaid: Unsaid,
) -> list[str]:  # fmt: skip
    """All but the state of the things themselves; random states last. What could not be put back, in sentences without
    their end."""
    told = [*drawn_anew(), *unsaid.put(things, state.get("unsaid", {}))]
    counts = state["counts"]
    recorder.steps, recorder.optimizer_steps = counts["steps"], counts["optimizer_steps"]
    recorder.epoch = counts["epoch"]
    recorder.latest_epoch = (max(0, counts["epoch"] - 1), None)
    registry.counted = {name: (before, own) for name, (before, own) in counts["loaders"].items()}
    registry.handed = dict(counts.get("batch_sizes", {}))
    for record in registry.records.values():  # one that was iterated before the loop
        record.epochs_before, record.epochs = registry.counted.pop(record.id, (0, 0))
        record.handed = registry.handed.pop(record.id, None)
    loaders.put(state["loaders"], bytes(state["random"]["torch"].tolist()))
    missed = randomness.put(torch, state["random"])
    if missed:
        told.append("the random states of %s were not restored: they are not here" % ", ".join(missed))
    return told
