"""What a hot restart means for a run, and what follows next while one is under way. Pure; ``restarts`` carries it out.

The promises in it: a training that could not go on where it stopped is never restarted, and whatever is not yet handed
over can be called off without the training noticing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.history.ranks import several
from cockpit.history.report import duration
from cockpit.history.restart import THE_ONE_BEFORE
from cockpit.history.state import Entry, State
from cockpit.history.trials import is_restart
from cockpit.model.counts import noun
from cockpit.model.environment import AS_BEGAN, PLAIN, check_variable
from cockpit.model.errors import CockpitError
from cockpit.model.knobs import ANEW, ENV, RESTART, UNSET, Value
from cockpit.probe import lives

from . import next_environ
from .changes import check_running
from .room import UNKNOWN, Room, check_room


@dataclass(frozen=True)
class Standing:
    """How the run stands. ``session``: what the script handed to ``cockpit.session``, None where it has not.

    ``speaker``: who trains, ``started``: what the keeper started, with the name of its program. ``set_early``:
    variables that the script sets before it imports torch. ``environ``: what the present process was started with,
    None where that cannot be read. ``room``: whether there is memory for a second process.
    """

    session: Mapping[str, Any] | None = None
    speaker: int | None = None
    started: int | None = None
    program: str = ""
    set_early: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None
    room: Room = UNKNOWN


@dataclass(frozen=True)
class Wanted:
    """A restart that may go ahead: ``asked`` as the ledger has it, the values of before, and the new environment."""

    asked: Mapping[str, Value]
    before: Mapping[str, Value | None]
    environ: Mapping[str, str]


def wanted(state: State, standing: Standing, env: Mapping[str, str | None], inject: str) -> Wanted:
    """What is to be started; raises a CockpitError with the reason why not. None as a value takes a variable away."""
    for name, value in env.items():
        check_variable(name, value)
    check_running(state)
    _check_can(state, standing)
    environ = standing.environ
    if environ is None:
        raise CockpitError("the environment that the training was started with cannot be read any more")
    for name in env:
        if name in standing.set_early:
            raise CockpitError(f"{state.script} sets {name} itself, before it imports torch: change it there")
    found = next_environ.next_of(state.environment or {}, environ, env, inject)
    if env and not found.asked:
        raise CockpitError(", ".join(f"{name} is {_already(value)}" for name, value in env.items()))
    if not env:
        return Wanted({RESTART: ANEW}, {RESTART: None}, found.environ)
    asked: dict[str, Value] = {ENV + name: UNSET if value is None else value for name, value in found.asked.items()}
    return Wanted(asked, {ENV + name: value for name, value in found.before.items()}, found.environ)


LOST = "as it began, or nobody knows any more what it was then"


def _already(value: str | None) -> str:
    return "not set" if value is None else LOST if value == AS_BEGAN else f"{value} already"


def _check_can(state: State, standing: Standing) -> None:
    if any(is_restart(entry) and entry.state in ("queued", "applying") for entry in state.ledger):
        raise CockpitError("a restart is already under way: cockpit drop calls it off while it is not handed over")
    if state.phase == "paused":
        raise CockpitError(f"{state.run} is paused: resume it first, it hands over at the end of an epoch")
    if several(state):
        raise CockpitError("several ranks cannot be restarted yet: each would have to hand over at the same step")
    if standing.speaker is None:
        raise CockpitError(f"{state.run} has no probe that trains: nothing can be handed over")
    if standing.session is None:
        raise CockpitError(cost(state))
    if standing.session.get("reason"):
        raise CockpitError(f"nothing can be handed over: {standing.session['reason']}")
    if standing.speaker != standing.started:
        program = standing.program or "another process"
        raise CockpitError(
            f"the training was started by {program}, which a restart would run again from its first line: "
            "start the script itself to restart it"
        )
    if not state.step:
        raise CockpitError("no step has been made yet, so nothing can be handed over: stop it and start it again")
    check_room(standing.room)


def cost(state: State) -> str:
    """What a restart would lose where the script cannot go on by itself."""
    neither = f"{state.script} does not call cockpit.session and was started without --resume-with"
    words = f"{neither}, so a new process would begin at the first epoch"
    if not state.step:
        return words + " (see the README: three lines in the script)"
    spent = f", {duration(state.at_s - state.started_s)} of training," if state.started_s is not None else ""
    return f"{words}: {state.step} {noun(state.step, 'step')}{spent} would be lost"


HARMLESS = ("TOKENIZERS_", "TRANSFORMERS_", "HF_", "WANDB_", "MLFLOW_", "TF_CPP_", "MPL", "MASTER_", "RANK", "WORLD_")
"""Beginnings of names that torch does not read when it is imported."""


def why_cold(set_early: Iterable[str]) -> list[str]:
    """Why torch must be left to the script to import: it sets what torch may read then. Empty where it need not be."""
    return [f"it sets {name} first" for name in set_early if not name.startswith(HARMLESS)]


# ---- while one is under way ----


@dataclass(frozen=True)
class View:
    """What is known of the life that a change prepares. ``status``: how its keeper says that it ended.

    ``keeper``: whether that lives. ``told``: the training knows of it. ``failed``: why it could not hand over.
    ``env``: what the new process finds in its environment; None before it has said so. ``base``: what it goes on from,
    where that is no hand-off of the process before. ``words``: the last line that its imports printed. ``back``: how
    the new process ended, where the one of before runs in its place.
    ``lingered_s``: for how long the process that has handed over was seen after that; ``lingers``: it is there still.
    ``held``: where its script has caught its end. ``back_stepped``: what began in the new one's place goes on.
    ``error``: what nobody caught in the new process.
    """

    folder: bool = False
    keeper: bool = False
    ready: Mapping[str, Any] = field(default_factory=dict)
    go: Mapping[str, Any] = field(default_factory=dict)
    told: bool = False
    noted: bool = False
    failed: str | None = None
    status: int | None = None
    stepped_s: float | None = None
    back: int | str | None = None
    env: Mapping[str, str | None] | None = None
    base: str | None = None
    words: str = ""
    lingered_s: float = 0.0
    lingers: bool = False
    held: str | None = None
    back_stepped: bool = False
    error: str = ""


@dataclass(frozen=True)
class Move:
    """The change is now in ``state`` (``queued``: only ``note`` is new). ``call_off``: end what waits for its turn."""

    state: str
    reason: str | None = None
    note: str | None = None
    step: int = 0
    stall_ms: float | None = None
    in_force: Mapping[str, Value | None] | None = None
    call_off: bool = False


@dataclass(frozen=True)
class Tell:
    """Ask the training to hand over at its next boundary."""


LINGERS_S = 3.0
"""Who needs longer to end once it has handed over keeps the new process waiting, and that is told."""
COLD_STEPS = 20
"""Steps of a new process that are nobody's measure: allocators, caches and workers begin anew."""


def next_of(entry: Entry, view: View) -> Move | Tell | None:
    """What follows for a restart that is under way; None: nothing yet."""
    if "handoff" in view.go:
        return _handed_over(entry, view)
    if not view.folder:
        return Move("refused", "cockpit's engine was lost before the new process was started", call_off=True)
    if view.go.get(lives.BY_SCRIPT):
        return Move("refused", f"the script could not begin again: {view.go.get('refused')}", call_off=True)
    if view.failed is not None:
        return Move("refused", view.failed, call_off=True)
    if view.status is not None:
        # it ends quietly where the training does: the end itself says that
        how = f"the new process ended with status {view.status} before its turn"
        return Move("refused", f"{how}: {view.words}" if view.words else how) if view.status else None
    if not view.keeper:
        return Move("refused", "the new process was lost before its turn", call_off=True)
    if view.ready and not view.noted:
        return Move("queued", note=_ready_words(view.ready))
    return Tell() if view.ready and not view.told else None


def _ready_words(ready: Mapping[str, Any]) -> str:
    own_kb = int(ready.get("private_clean_kb") or 0) + int(ready.get("private_dirty_kb") or 0)
    holds = f", {max(1, own_kb // 1024)} MB of its own" if own_kb else ""
    why = ", ".join(map(str, ready.get("why") or ()))
    how = "torch is imported" if ready.get("torch") else f"the script imports torch itself: {why}"
    return f"the new process is ready ({how}{holds}); the training hands over when its epoch ends"


def _handed_over(entry: Entry, view: View) -> Move | None:
    step = int(view.go.get("step") or 0)
    if entry.state == "queued":
        return Move("applying", step=step)
    if view.back is not None:
        return _gone_back(entry, view, step)
    if view.status is not None and view.stepped_s is None:
        return None  # that is the end of the run, and told as such
    if view.stepped_s is None or view.env is None:
        told = _of_the_one_before(view)
        return Move("applying", note=told, step=step) if told not in (None, entry.note) else None
    found: dict[str, Value | None] = {ENV + name: value for name, value in view.env.items()}
    # what was put back as it began is nobody's to read
    found.update({name: value for name, value in entry.asked.items() if value == AS_BEGAN})
    wrong = [
        f"{name.removeprefix(ENV)} is {_other(name.removeprefix(ENV), found[name])}"
        for name, value in entry.asked.items()
        if name in found and found[name] != (None if value == UNSET else value)
    ]
    began_s = view.go.get("at_s")
    return Move(
        "settling",
        "no effect: " + ", ".join(wrong) + " in it" if wrong else None,
        note=_of_the_one_before(view),
        step=step,
        stall_ms=1000.0 * max(0.0, view.stepped_s - float(began_s)) if began_s is not None else None,
        in_force={name: _in_force(name, found.get(name, value), value) for name, value in entry.asked.items()},
    )


def _gone_back(entry: Entry, view: View, step: int) -> Move | None:
    """The same script begins as it was before, and may fail for the same reason: only a step of it says that it goes
    on."""
    why = f" ({view.error})" if view.error else ""
    failed = f"the new process ended with {_ended(view.back or 0)} before its first step{why}"
    if view.back_stepped:
        return Move("rolled_back", f"{failed}; goes on from {view.base or 'the hand-off'} as it was before", step=step)
    if view.status is not None:
        left = f"{view.base or _name_of(view.go)} is left"  # the crash that this is says what becomes of it
        again = f"so did the one that began as it was before (status {view.status})"
        return Move("ended", f"{failed}, and {again}; {left}", step=step)
    note = f"{failed}: it begins once more, as it was before"
    return Move("applying", note=note, step=step) if note != entry.note else None


def _name_of(go: Mapping[str, Any]) -> str:
    number = str(go.get(lives.HANDOFF)).rpartition("/")[2]
    return f"hand-off {number}" if number.isdigit() else "the hand-off"


def _of_the_one_before(view: View) -> str | None:
    """What is to be known of the process that has handed over; None where it has just ended."""
    said = []
    if view.held is not None:
        caught = f"its script catches every exception round its loop ({view.held})"
        said.append(f"{caught}, so it ends at its next save, step or call of a model")
    if view.lingered_s >= LINGERS_S:
        said.append("it has not ended yet" if view.lingers else f"it took {view.lingered_s:.0f} s to end")
    return f"{THE_ONE_BEFORE} has handed over; {'; '.join(said)}" if said else None


def _other(name: str, value: Value | None) -> str:
    """What the script has made of it: told only where it can be no secret."""
    return "not set" if value is None else str(value) if name in PLAIN else "another"


def _in_force(name: str, found: Value | None, asked: Value) -> Value | None:
    known = found is None or found == asked or name.removeprefix(ENV) in PLAIN or not name.startswith(ENV)
    return found if known else AS_BEGAN


def _ended(status: int | str) -> str:
    return f"status {status}" if isinstance(status, int) else str(status).replace("\n", ": ")
