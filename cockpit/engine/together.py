"""One change over several ranks is one trial: it is in force when all have it, and comes back from all if one fails.

Fed by ``hear`` with each rank's word on each change; answers with what the run as a whole reports, and asks the
others back where it must. With a single process that trains, every word passes through as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cockpit.history.ranks import refusal
from cockpit.history.state import Entry, State
from cockpit.history.trials import PENDING, entry_of
from cockpit.model.events import BlockMeasured, ChangeAsked, ChangeMoved, Event
from cockpit.model.knobs import LOADER_KNOBS, SCRIPT, Value
from cockpit.model.ranks import NOT_YET

from .changes import stacks
from .probes import Probe
from .ranks import world_of
from .told import ask_message, asked_of, drop_message

PATIENCE_S = 5.0
"""How long a rank that ought to be there is waited for before the others are taken for all."""
CAUGHT_UP_S = 1.0
"""A rank that joins says within this time what it has already (from start.json, or before the engine was away)."""
HAS = ("applying", "settling")
FAILED = ("refused", "rolled_back")
TRIALS_LONGEST = 200

Asking = Callable[[str], "ChangeAsked | None"]


@dataclass(eq=False)
class Trial:
    """``words``: each process's newest word, by pid. ``backs``: asked to go back, by pid, as which change.

    ``done``: those of them that are back. ``over``: how it failed as a whole, once that was told.
    """

    id: str
    words: dict[int, ChangeMoved] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)
    backs: dict[int, str] = field(default_factory=dict)
    done: dict[int, ChangeMoved] = field(default_factory=dict)
    over: str | None = None


class Together:
    """``asking(id)`` knows changes that the ledger may not hold: scheduled ones, and withdrawn ones."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._trials: dict[str, Trial] = {}
        self._back: dict[str, tuple[str, int]] = {}
        self._caught_up: set[tuple[int, str]] = set()
        self._met: set[int] = set()
        self._awaited: tuple[frozenset[int], float] = (frozenset(), 0.0)

    def expect(self, pids: frozenset[int], at_s: float) -> None:
        """Ranks that another engine knew: they come back by themselves, unless they are gone."""
        self._awaited = (pids, at_s)

    def heard(self, probe: Probe, moved: ChangeMoved, members: Sequence[Probe], state: State) -> list[Event]:
        """A process's word on a change. ``members`` are those that count, the leader first."""
        if moved.state == "queued":  # not yet a word on how it fares: only what is to be known before
            return [moved] if entry_of(state, moved.id) is not None else []
        if moved.id in self._back:
            change, pid = self._back[moved.id]
            trial = self._trials[change]
            if moved.state == "applying":
                return []
            trial.done[pid] = moved
        else:
            trial = self._trials.setdefault(moved.id, Trial(moved.id))
            trial.words[probe.pid] = moved
            self._forget_oldest()
        return self._weigh(trial, members, state, moved.at_s)

    def look_again(self, members: Sequence[Probe], state: State, at_s: float) -> list[Event]:
        """Time has passed, or somebody has come or gone: what was waited for may be decided now."""
        if len(members) > 1:
            self._catch_up(members, state, at_s)
        events: list[Event] = []
        pending = {entry.id for entry in state.ledger if entry.state in (*PENDING, "settling")}
        for trial in list(self._trials.values()):
            if trial.over is None and (trial.backs or trial.id in pending):
                events += self._weigh(trial, members, state, at_s)
        return events

    def of_trial(self, block: BlockMeasured, state: State) -> BlockMeasured:
        """A block that ran under a way back ran under what was in force before."""
        change, _ = self._back.get(block.change or "", (None, 0))
        over = change is not None and self._trials[change].over is not None
        return replace(block, change=state.current.change) if over else block

    # ---- deciding ----

    def _weigh(self, trial: Trial, members: Sequence[Probe], state: State, at_s: float) -> list[Event]:
        entry = entry_of(state, trial.id)
        self._met.update(probe.pid for probe in members)
        asked = entry or self._asking(trial.id)
        members = concerned(members, asked.loader if asked is not None else None)
        words = [(probe, trial.words.get(probe.pid)) for probe in members]
        has = any(word is not None and word.state in HAS for _, word in words)
        never = _never(asked) if len(members) > 1 else None
        if never is not None and has:
            # processes that know nothing of each other took it (from start.json, or before the second one trained)
            first = next(word for _, word in words if word is not None and word.state in HAS)
            return self._fail(trial, None, replace(first, state="refused", reason=never), members, entry, at_s)
        for probe, word in words:
            if word is not None and (word.state in FAILED or (word.state == "dropped" and has)):
                return self._fail(trial, probe, word, members, entry, at_s)
        found = [word for _, word in words if word is not None]
        if not found:
            return []
        if len(found) == len(words):
            if all(word.state == "dropped" for word in found):
                return [replace(found[0], at_s=at_s)] if entry is not None else []
            if all(word.state == "settling" for word in found) and not self._awaits(members, at_s):
                stalls = [word.stall_ms for word in found if word.stall_ms is not None]
                return self._tell(replace(found[0], at_s=at_s, stall_ms=max(stalls, default=None)), entry)
        if not has or (entry is not None and entry.state != "queued"):
            return []
        first = next(word for word in found if word.state in HAS)
        return self._tell(replace(first, at_s=at_s, state="applying", stall_ms=None), entry)

    def _awaits(self, members: Sequence[Probe], at_s: float) -> bool:
        """Whether a rank that ought to be here may still come."""
        pids, since_s = self._awaited
        if pids - {probe.pid for probe in members} and at_s - since_s < PATIENCE_S:
            return True
        newest_s = max(probe.joined_s for probe in members)
        return len(self._met) < (world_of(members) or 1) and at_s - newest_s < PATIENCE_S

    def _fail(
        self,
        trial: Trial,
        failed: Probe | None,
        word: ChangeMoved,
        members: Sequence[Probe],
        entry: Entry | None,
        at_s: float,
    ) -> list[Event]:
        """``failed`` cannot have it, or several ranks cannot (None): nobody keeps it."""
        for probe in members:
            theirs = trial.words.get(probe.pid)
            if probe is failed or probe.pid in trial.backs:
                continue
            if theirs is None and probe.pid not in trial.withdrawn:
                trial.withdrawn.add(probe.pid)
                probe.send(drop_message(trial.id))
            elif theirs is not None and theirs.state in HAS:
                self._ask_back(trial, probe, theirs, entry)
        reason = "taken back before every rank had it" if word.state == "dropped" else word.reason
        if failed is not None and len(members) > 1 and word.state != "dropped" and NOT_YET not in (reason or ""):
            reason = f"{failed.name}: {reason}"
        if trial.over is not None:
            return []
        lead = members[0]
        told = trial.words.get(lead.pid, word)
        if any(probe.pid in trial.backs and probe.pid not in trial.done for probe in members):
            # not back everywhere: until then it is neither in force nor rolled back
            new = entry is None or (entry.state in PENDING and entry.reason != reason)
            return self._tell(replace(told, at_s=at_s, state="applying", reason=reason), None, entry) if new else []
        trial.over = "rolled_back" if trial.backs or word.state == "rolled_back" else "refused"
        back = trial.done.get(lead.pid, word)
        stalls = [each.stall_ms for each in (word, *trial.done.values()) if each.stall_ms is not None]
        moved = replace(
            back, at_s=at_s, id=trial.id, state=trial.over, before=told.before, reason=reason, note=told.note,
            stall_ms=max(stalls, default=None),
        )  # fmt: skip
        return self._tell(moved, None, entry)

    def _ask_back(self, trial: Trial, probe: Probe, word: ChangeMoved, entry: Entry | None) -> None:
        """Asks ``probe`` for the values that it had before, as soon as it can."""
        values: dict[str, Value] = {n: SCRIPT if v is None else v for n, v in (word.before or {}).items()}
        asked = entry or self._asking(trial.id)
        if not values:
            return
        trial.backs[probe.pid] = back = f"{trial.id}-{probe.rank}"
        self._back[back] = (trial.id, probe.pid)
        probe.send(ask_message(back, values, True, asked.loader if asked is not None else None))

    def _tell(self, moved: ChangeMoved, known: Entry | None, entry: Entry | None = None) -> list[Event]:
        """The event, after the asking that belongs to it where the ledger has none; nothing where it is known."""
        known_already = known or entry
        if known_already is None:
            # a scheduled change enters the ledger when its moment comes; one that we withdrew has overtaken us
            return [asked_of(self._asking(moved.id), moved), moved]
        return [] if known is not None and known.state == moved.state else [moved]

    # ---- who joins late ----

    def _catch_up(self, members: Sequence[Probe], state: State, at_s: float) -> None:
        """A rank that joins takes what the others have; each change keeps its id, so that it is asked for once."""
        late = [probe for probe in members if at_s - probe.joined_s >= CAUGHT_UP_S]
        applying = [entry for entry in state.ledger if entry.state == "applying"]
        for entry in [*stacks(state)[0], *applying] if late else ():
            knobs = {name: value for name, value in entry.asked.items() if name in LOADER_KNOBS}
            for probe in late:
                trial, key = self._trials.get(entry.id), (probe.pid, entry.id)
                has_word = trial is not None and (probe.pid in trial.words or trial.over is not None)
                if knobs and key not in self._caught_up and not has_word:
                    self._caught_up.add(key)
                    probe.send(ask_message(entry.id, knobs, entry.now and entry.state == "applying", entry.loader))

    def _forget_oldest(self) -> None:
        while len(self._trials) > TRIALS_LONGEST:
            oldest = self._trials.pop(next(iter(self._trials)))
            for back in oldest.backs.values():
                self._back.pop(back, None)


def _never(asked: ChangeAsked | Entry | None) -> str | None:
    if asked is None:
        return None
    return refusal(asked.knobs if isinstance(asked, ChangeAsked) else asked.asked)


def concerned(members: Sequence[Probe], loader: str | None) -> Sequence[Probe]:
    """Those that can take a change of ``loader``, or of all that train; all, where none is known to have one.

    A rank may load nothing itself (a pipeline's later stage), and validation may run on the first rank alone.
    """
    having = [
        probe
        for probe in members
        if any(each.id == loader if loader is not None else each.role != "other" for each in probe.loaders)
    ]
    return having or members
