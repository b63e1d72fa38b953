"""Where a run stands and what has to be done next: stopping, the end, leaving. Pure; ``engine`` carries it out.

The promises in it: a soft stop signals the training alone until its grace is over, and everything of the run then;
after an end that nobody asked for nothing but this run's loader workers is signalled.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from .processes import Process

KILL_AFTER_S = 4.0
"""After TERM to everything: how long until KILL."""
WORKERS_KILL_AFTER_S = 1.0
HEAR_LEAST_S, HEAR_MOST_S = 0.05, 0.5
"""What the probe said last lies in the socket when the process is gone already."""
LEFT_S_AT_MOST = 30.0
"""After a stop, whatever the training has left behind (it may upload what was saved) has the rest of the grace, but
never longer than this."""
NAMED_AFTER_S = 0.6
"""Helpers that end just after the training are no survivors."""
SURVIVE_KILL_S = 10.0
"""A process that has not gone so long after KILL sleeps in the kernel: it is named and the run ends."""
LINGER_S = 2.0
"""An engine that nobody has watched yet stays so long after the end, for the screen that is just opening."""


@dataclass(frozen=True)
class View:
    """What the decision rests on. Times in seconds by one clock, which must not jump.

    ``others`` are the run's living processes but the training; looked up only when they matter. ``unmarked``: those
    that it started without the run's mark: never signalled. ``told``: pids that were sent a TERM before.
    ``stop_until_s``: end of the grace of a stop that was asked for. ``gone_s``: when the training was seen gone.
    ``exit_status`` None then: it cannot be known any more. ``hears``: a probe's last words may still be on their way.
    ``over``: the end is written down already.
    """

    now_s: float
    training: int | None = None
    others: tuple[Process, ...] = ()
    unmarked: tuple[Process, ...] = ()
    told: frozenset[int] = frozenset()
    stop_until_s: float | None = None
    gone_s: float | None = None
    exit_status: int | None = None
    hears: bool = False
    over: bool = False
    over_s: float = 0.0
    clients: int = 0
    was_watched: bool = False


@dataclass(frozen=True)
class Send:
    """Signal these processes, each only if it bears the run's mark."""

    pids: tuple[int, ...]
    number: signal.Signals


@dataclass(frozen=True)
class Finish:
    """Write down the end."""

    exit_status: int | None
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """Nothing is left to do for this engine."""


Action = Send | Finish | Leave


def needs_others(view: View) -> bool:
    """Whether deciding needs to know the run's other processes (a walk through /proc)."""
    return not view.over and (view.gone_s is not None or _is_escalated(view))


def decide(view: View) -> tuple[Action, ...]:
    """What to do now, in this order."""
    if view.over:
        stays = view.clients > 0 or (not view.was_watched and view.now_s - view.over_s < LINGER_S)
        return () if stays else (Leave(),)
    if view.gone_s is not None:
        return _after_the_end(view, view.gone_s)
    if _is_escalated(view) and view.stop_until_s is not None:
        training = () if view.training is None else (view.training,)
        pids = (*training, *(process.pid for process in view.others))
        return _harder(view, pids, view.now_s - view.stop_until_s, KILL_AFTER_S)
    return ()


def _is_escalated(view: View) -> bool:
    return view.stop_until_s is not None and view.now_s >= view.stop_until_s


def _after_the_end(view: View, gone_s: float) -> tuple[Action, ...]:
    since_s = view.now_s - gone_s
    workers = tuple(process.pid for process in view.others if process.is_worker)
    actions = _harder(view, workers, since_s, WORKERS_KILL_AFTER_S)
    if view.stop_until_s is None:
        waiting = since_s < SURVIVE_KILL_S if workers else bool(view.others) and since_s < NAMED_AFTER_S
    else:
        until_s = max(gone_s, min(view.stop_until_s, gone_s + LEFT_S_AT_MOST))
        rest = tuple(process.pid for process in view.others if not process.is_worker)
        if view.now_s >= until_s:
            actions += _harder(view, rest, view.now_s - until_s, KILL_AFTER_S)
        waiting = bool(view.others) and view.now_s < until_s + SURVIVE_KILL_S
    waiting = waiting or since_s < (HEAR_MOST_S if view.hears else HEAR_LEAST_S)
    if waiting:
        return actions
    left = (*view.others, *view.unmarked)
    return (*actions, Finish(view.exit_status, tuple(f"{process.pid} {process.name}" for process in left)))


def _harder(view: View, pids: tuple[int, ...], since_s: float, kill_after_s: float) -> tuple[Action, ...]:
    """TERM, once to each (many programs die at a second one, in the middle of saving); later KILL."""
    if since_s >= kill_after_s:
        return (Send(pids, signal.SIGKILL),) if pids else ()
    fresh = tuple(pid for pid in pids if pid not in view.told)
    return (Send(fresh, signal.SIGTERM),) if fresh else ()
