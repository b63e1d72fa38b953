"""The knobs of a run as rows: what the script has, what was asked, what is in force, and why not.

Derived from the loaders that the probe reported and from the ledger; read by status, panel and save.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from cockpit.model.events import KnobReport, LoaderInfo
from cockpit.model.knobs import BY_NAME, KERNEL_KNOBS, KNOBS, SCRIPT, Value, show_value
from cockpit.model.missing import FAILED

from .ends import ENDED, why_never
from .state import Entry, State

STEPS_WITHOUT = 30
"""After so many steps without any loader there will be none."""


@dataclass(frozen=True)
class KnobRow:
    """One knob over all training loaders. ``in_force`` is None where unknown or where loaders differ (``mixed``).

    ``state``: untouched, queued, applying, settling, kept, rolled_back, refused, ended. ``next``: the queued value.
    """

    name: str
    script: Value | None
    asked: Value | None
    in_force: Value | None
    state: str
    reason: str | None
    can: bool
    can_now: bool
    next: Value | None = None
    mixed: bool = False
    note: str | None = None


def training_loaders(state: State) -> tuple[LoaderInfo, ...]:
    """Loaders known to train; while none is known, all whose role is still open."""
    training = tuple(loader for loader in state.loaders if loader.role == "train")
    return training or tuple(loader for loader in state.loaders if loader.role == "unknown")


def knob_rows(state: State) -> tuple[KnobRow, ...]:
    """One row a knob, in the table's order.

    Those of the whole training have theirs as soon as the probe has told of one, or somebody has asked for one.
    """
    told = {knob.name: _reports(state, knob.name) for knob in KNOBS}
    rows = tuple(_row(state, name, reports) for name, reports in told.items())
    whole = [row for row in rows if _of_the_whole(row.name)]
    shown = any(told[row.name] or row.asked is not None for row in whole)
    return rows if shown else tuple(row for row in rows if row not in whole)


def _of_the_whole(name: str) -> bool:
    return BY_NAME[name].room == "kernel"


def _reports(state: State, name: str) -> list[KnobReport]:
    """What was told of this knob: once for the whole training, else by each loader that trains."""
    told = kernel_reports(state) if _of_the_whole(name) else _told_by(training_loaders(state))
    return [report for report in told if report.name == name]


def kernel_reports(state: State) -> tuple[KnobReport, ...]:
    """The knobs of the whole training; journals from before they stood alone told them with each loader."""
    old = (report for report in _told_by(training_loaders(state)[:1]) if report.name in KERNEL_KNOBS)
    return state.kernels or tuple(old)


def _told_by(loaders: Sequence[LoaderInfo]) -> list[KnobReport]:
    return [report for loader in loaders for report in loader.knobs]


def _row(state: State, name: str, reports: list[KnobReport]) -> KnobRow:
    entry = last_entry(state, name)
    start = (state.setup or {}).get(name)
    start = None if start == SCRIPT else start
    asked = entry.asked[name] if entry and entry.state != "reverted" else start
    word = entry.state if entry and entry.state != "reverted" else "untouched"
    values = {report.in_force for report in reports}
    scripts = {report.script for report in reports}
    if word == "untouched" and start is not None:
        word = _from_start_word(state, name, start, reports)
    return KnobRow(
        name=name,
        script=scripts.pop() if len(scripts) == 1 else None,
        asked=asked,
        in_force=values.pop() if len(values) == 1 else None,
        state=word,
        reason=_why(state, name, entry, word, reports),
        can=bool(reports) and any(report.can for report in reports),
        can_now=bool(reports) and any(report.can and report.can_now for report in reports),
        next=entry.asked[name] if entry and entry.state in ("queued", "applying") else None,
        mixed=len({report.in_force for report in reports}) > 1,
        note=next((report.note for report in reports if report.note), None),
    )


def _why(state: State, name: str, entry: Entry | None, word: str, reports: list[KnobReport]) -> str | None:
    """Why it is not as asked, or cannot be changed: what the change itself said comes first."""
    if entry and entry.state in ("rolled_back", "refused", ENDED) and entry.reason:
        return entry.reason
    none = probe_failed(state) or no_loader(state, (name,))
    never = next((report.reason for report in reports if not report.can and report.reason), none)
    if never is None and word == "refused":
        # set from the start: it is possible here, and this value was not
        words = (report.reason or report.note for report in reports)
        over = state.phase in ("ended", "lost")
        return next(filter(None, words), None) or (why_never(state, (name,)) if over else None)
    return never or next((report.reason for report in reports if not report.can_now and report.reason), None)


def _from_start_word(state: State, name: str, value: Value, reports: list[KnobReport]) -> str:
    """How what ``--set`` or the file asked for has fared."""
    if reports and all(report.in_force == value for report in reports):
        return "kept"
    if _of_the_whole(name):
        # told from the first step on; nothing found yet: the model has not been called since
        over = bool(reports) and all(report.in_force is not None for report in reports)
    else:
        waits = any(report.asked is not None for report in reports)
        over = bool(reports) and _has_begun(training_loaders(state)) and not waits
    over = over or any(not report.can for report in reports) or state.phase in ("ended", "lost")
    return "refused" if over else "queued"


def _has_begun(loaders: Sequence[LoaderInfo]) -> bool:
    """Whether all have handed out a batch, so that what is set from the start is in force by now, or never will be."""
    return all(any(report.in_force is not None for report in loader.knobs) for loader in loaders)


def last_entry(state: State, name: str) -> Entry | None:
    """The newest ledger entry that touches this knob of a training loader."""
    return _newest(state, name, {None, *(loader.id for loader in training_loaders(state))})


def _newest(state: State, name: str, loaders: Set[str | None]) -> Entry | None:
    return next((entry for entry in reversed(state.ledger) if name in entry.asked and entry.loader in loaders), None)


def is_answered(state: State, entry: Entry) -> bool:
    """Whether the rows speak of what this queued change asks for, where that takes the training's own word."""
    rooms = {name: BY_NAME[name].room for name in entry.asked if name in BY_NAME}
    if entry.now and any(not row.can and row.reason for row in knob_rows(state) if rooms.get(row.name) == "kernel"):
        return False  # it is about to be refused, where the steps end
    for name in (name for name, room in rooms.items() if room in ("batch", "loader")):
        loaders = [info for info in state.loaders if entry.loader == info.id] or training_loaders(state)
        for report in (report for report in _told_by(loaders) if report.name == name):
            wanted = report.script if entry.asked[name] == SCRIPT else entry.asked[name]
            if report.asked != wanted:
                return False
    return True


def rows_for(state: State, loader: str | None) -> dict[str, KnobRow | KnobReport]:
    """What is told of each knob, by name: of the loader that is named, where it is known, else of all that train."""
    named = [report for info in state.loaders if info.id == loader for report in info.knobs]
    return {row.name: row for row in (named or knob_rows(state))}


def can_be_now(state: State, entry: Entry) -> bool:
    """Whether nothing of a change has to wait for a boundary, as far as the rows tell."""
    rows = rows_for(state, entry.loader)
    return all(rows[name].can_now or not rows[name].can for name in entry.asked if name in rows)


def no_loader(state: State, names: Iterable[str]) -> str | None:
    """Why none of those knobs of loaders can be had: the training has none, as far as it has come; None: it may."""
    unmet = [name for name in names if name in BY_NAME and BY_NAME[name].room in ("loader", "batch")]
    if not unmet or state.loaders or (state.step or 0) < STEPS_WITHOUT:
        return None
    return "no DataLoader was seen: the training makes its batches itself"


def probe_failed(state: State) -> str | None:
    """Why nothing can be changed in this training: no probe has come to life in it; None: one has, or still may."""
    reason = state.probe_reason or ""
    return reason if state.probe == "waiting" and reason.startswith(FAILED) else None


def queued(state: State) -> tuple[Entry, ...]:
    """Changes asked for and not yet in force, oldest first."""
    return tuple(entry for entry in state.ledger if entry.state in ("queued", "applying"))


def tuned_setup(state: State) -> dict[str, Value]:
    """What differs from the script right now, in every training loader alike: the bare knobs of a saved file."""
    found: dict[str, Value] = {}
    told: list[tuple[str | None, KnobReport]] = [(None, report) for report in kernel_reports(state)]
    told += [(loader.id, report) for loader in training_loaders(state) for report in loader.knobs]
    tuned = {report.name for loader, report in told if _is_tuned(state, loader, report)}
    for row in knob_rows(state):
        if row.in_force is not None and row.name in tuned:
            found[row.name] = row.in_force
    return found


def tuned_loaders(state: State) -> dict[str, dict[str, Value]]:
    """The same for single loaders: training loaders that differ from each other, and others that were named."""
    alike = {row.name for row in knob_rows(state) if not row.mixed}
    training = training_loaders(state)
    found: dict[str, dict[str, Value]] = {}
    for loader in state.loaders:
        for report in loader.knobs:
            told_already = report.name in alike if loader in training else _is_passing(state, loader, report)
            if report.in_force is not None and not told_already and _is_tuned(state, loader.id, report):
                found.setdefault(loader.id, {})[report.name] = report.in_force
    return found


def _is_tuned(state: State, loader: str | None, report: KnobReport) -> bool:
    """Whether this is what somebody chose, and not what the script would have, were it run without us."""
    entry = _newest(state, report.name, {None, loader})
    asked = entry.asked[report.name] if entry else _from_start(state, loader).get(report.name)
    if report.script is None or not report.can:
        # it does not apply under the script's own settings (prefetch without workers), or this machine has changed it
        # (pinning without an accelerator), which another must not learn from a file: only what somebody chose is kept
        return asked is not None and asked == report.in_force != report.script
    return report.in_force is not None and report.in_force != report.script


def _is_passing(state: State, loader: LoaderInfo, report: KnobReport) -> bool:
    """Set from the start for all, on a loader that turned out not to train: it is about to be put back."""
    named = _newest(state, report.name, {loader.id}) or report.name in (state.loader_setups or {}).get(loader.id, {})
    return not named and (state.setup or {}).get(report.name) == report.in_force


def _from_start(state: State, loader: str | None) -> Mapping[str, Value]:
    return {**(state.setup or {}), **(state.loader_setups or {}).get(loader or "", {})}


def not_applied(state: State) -> dict[str, str]:
    """What was asked for from the start and is not in force, as ``pin_memory on``, with the reason."""
    found = {
        f"{row.name} {show_value(row.asked)}": row.reason or "refused"
        for row in knob_rows(state)
        if row.state == "refused" and last_entry(state, row.name) is None
    }
    known = {loader.id: loader for loader in state.loaders}
    for name, knobs in (state.loader_setups or {}).items():
        if name not in known and state.phase in ("ended", "lost"):
            found[f"{name}: {', '.join(knobs)}"] = "no such loader was seen: the script may have changed"
        for report in known[name].knobs if name in known and _has_begun((known[name],)) else ():
            asked = knobs.get(report.name, SCRIPT)
            if asked not in (report.in_force, SCRIPT) and _newest(state, report.name, {None, name}) is None:
                found[f"{name}: {report.name} {show_value(asked)}"] = report.reason or "refused"
    return found
