"""A training that crashed, folded and in words: what was lost, whether it is tried again, what a person can do. Pure.

Called by the fold; read by status, report, progress and screen. It must never call lost what a new process still has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cockpit.model.counts import counted
from cockpit.model.crash import Crashed, IdentitySeen, Resumed, SessionSeen
from cockpit.model.events import Sampled

from . import ends, environment, gpu, pause, ranks
from .spans import duration
from .state import Entry, State
from .trials import entry_of, is_restart, with_entry, words_of

CRASHES_LONGEST = 10
TOO_LATE = "the training crashed before it could hand over"
KILLED = "killed"
LATE_S = 1.5
TAKEN_BACK = "taken back for the next process"


def session(state: State, event: SessionSeen) -> State:
    """The script has opted in."""
    return replace(state, session=event)


def identity(state: State, event: IdentitySeen) -> State:
    """By what name it reports elsewhere."""
    return replace(state, identity=dict(event.env))


def at_rest(state: State, at_s: float) -> State:
    """No process trains: what it was, and not what is. Nobody uses a core or makes a batch any more."""
    state = pause.closed(state, at_s)
    latest = state.latest
    if latest is not None:
        latest = Sampled(latest.at_s, latest.span_s, latest.step, latest.epoch, latest.step_in_epoch)
    return replace(
        state,
        latest=latest,
        loaders=tuple(replace(loader, workers=()) for loader in state.loaders),
        ranks=(),
        team=ranks.at_rest(state.team),
        step=ranks.last_step(state),
        gpu=gpu.at_rest(state.gpu),
    )


def crashed(state: State, event: Crashed) -> State:
    """What it had not settled under is blamed, since nobody has seen that it may stay; the rest waits with it."""
    known = [*state.crashes, event][-CRASHES_LONGEST:]
    state = replace(state, crash=event, crashes=tuple(known))
    if event.next_s is None:
        return state  # its end is told next, and closes all
    for waited in state.ledger:
        if is_restart(waited) and waited.state == "queued":
            state = with_entry(state, replace(waited, state="refused", state_s=event.at_s, reason=TOO_LATE))
    blamed = ends.close_begun(replace(state, exit_status=event.exit_status), event.at_s)
    for change in event.back:
        entry = entry_of(blamed, change)
        if entry is not None and entry.state == ends.ENDED:
            blamed = with_entry(blamed, replace(entry, reason=f"{entry.reason}; {TAKEN_BACK}"))
    return replace(at_rest(blamed, event.at_s), exit_status=None, phase="starting", probe="lost")


def resumed(state: State, event: Resumed) -> State:
    """Another process begins, whatever had ended before. What had been set for later waits for its moment again."""
    ledger = tuple(entry for entry in state.ledger if not _never_had_its_turn(entry))
    gone_s = state.crash.at_s if state.crash is not None else state.ended_s
    return replace(
        state,
        ledger=ledger,
        phase="starting",
        pid=None,
        exit_status=None,
        ended_s=None,
        stopping_until_s=None,
        leaving_s=None,
        survivors=(),
        idle_s=state.idle_s + (max(0.0, event.at_s - gone_s) if gone_s is not None else 0.0),
        crash=None,
        crashes=() if event.by_person else state.crashes,
        environment=environment.left(state, event.env) if event.env is not None else state.environment,
    )


def _never_had_its_turn(entry: Entry) -> bool:
    return entry.origin == "schedule" and entry.state == "refused" and entry.at_step is None


# ---- in words ----


def lost_words(steps: int | None, seconds: float | None, exact: bool = True) -> str:
    """What a new process does not have: steps where they are known, else the time that they took.

    Not ``exact``: the newest count that was heard of a process that was killed is some tenths of a second old.
    """
    if steps == 0 and not exact:
        return "a few steps may be lost"
    if steps is not None and not exact:
        return f"{counted(steps, 'step')} or a few more {'is' if steps == 1 else 'are'} lost"
    if steps is not None:
        return f"{counted(steps, 'step')} {'is' if steps == 1 else 'are'} lost" if steps > 0 else "nothing is lost"
    if seconds is None:
        return "what is lost is not known"
    return f"what was trained in the {duration(seconds)} since then is lost"


def goes_on_words(crash: Crashed) -> str:
    """From where, and what that costs."""
    return (
        f"goes on from {crash.base}: {lost_words(crash.lost_steps, crash.lost_s, not crash.cause.startswith(KILLED))}"
    )


def cause_words(crash: Crashed) -> str:
    """What ended it, and where."""
    return crash.cause if crash.step is None else f"{crash.cause}, at step {crash.step}"


DUE = "once nothing of it trains and its files can be written"


def try_words(crash: Crashed, now_s: float) -> str:
    """When the next try begins. One that is due waits for processes of the run that train all the same, or for room on
    its disk."""
    left_s = (crash.next_s or now_s) - now_s
    when = DUE if left_s < -LATE_S else f"in {max(0.0, left_s):.0f} s"
    return f"try {crash.number} of {crash.of} {when}"


def words(state: State, now_s: float) -> str | None:
    """The newest crash that nothing has followed yet, in one line; None where there is none."""
    crash = state.crash
    if crash is None:
        return None
    parts = [cause_words(crash)]
    if crash.next_s is not None and state.phase == "starting":
        parts.append(f"{try_words(crash, now_s)} {goes_on_words(crash)}")
        if crash.back:
            parts.append(f"without {', '.join(_named(state, change) for change in crash.back)}")
    else:
        parts += [crash.reason] if crash.reason else []
        parts += [f"cockpit restart {state.run} {goes_on_words(crash)}"] if crash.offered else []
    return "; ".join(parts)


def _named(state: State, change: str) -> str:
    entry = entry_of(state, change)
    return words_of(entry) if entry is not None else change


def helpless(state: State, facts: Mapping[str, Any]) -> str | None:
    """That ``--on-crash`` was asked for and cannot help, once that is known; ``facts``: the run's ``run.json``."""
    if not facts.get("on_crash") or facts.get("resume_with") or not state.step:
        return None
    told = state.session
    why = f"{state.script} does not call cockpit.session, and --resume-with was not given" if told is None else None
    if told is not None and told.epochs is None:
        why = told.reason
    return f"it would not be tried again: {why}" if why else None


def is_waiting(state: State) -> bool:
    """Whether another process is to begin by itself."""
    return state.crash is not None and state.crash.next_s is not None and state.phase == "starting"


def plain(state: State) -> dict[str, Any] | None:
    """``status["crash"]``: the newest crash that nothing has followed yet, null where there is none."""
    crash = state.crash
    if crash is None:
        return None
    return {
        "at_s": crash.at_s,
        "exit_status": crash.exit_status,
        "cause": crash.cause,
        "at_step": crash.step,
        "goes_on_from": crash.base,
        "lost_steps": crash.lost_steps,
        "lost_s": crash.lost_s,
        "next_s": crash.next_s if is_waiting(state) else None,
        "try": crash.number or None,
        "tries": crash.of or None,
        "reason": crash.reason,
        "restart": crash.offered,
    }


def pending_restart(state: State) -> Entry | None:
    """The restart that is waited for."""
    return next((e for e in reversed(state.ledger) if is_restart(e) and e.state in ("queued", "applying")), None)
