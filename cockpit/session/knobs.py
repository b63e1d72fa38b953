"""The knobs of a run as rows: what the script has, what was asked, what is in force, and why not.

Derived from the loaders that the probe reported and from the ledger; read by status, panel and save.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from cockpit.model.events import KnobReport, LoaderInfo
from cockpit.model.knobs import KNOBS, LOADER_KNOBS, SCRIPT, Value, show_value

from .state import Entry, State


@dataclass(frozen=True)
class KnobRow:
    """One knob over all training loaders. ``in_force`` is None where unknown or where loaders differ (``mixed``).

    ``state``: untouched, queued, applying, settling, kept, rolled_back, refused. ``next``: the queued value.
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

    A knob of the whole training has its row as soon as the probe has told of it, or somebody has asked for it.
    """
    loaders, rows = training_loaders(state), []
    for knob in KNOBS:
        reports = _reports(loaders, knob.name)
        row = _row(state, knob.name, reports)
        if knob.name in LOADER_KNOBS or reports or row.asked is not None:
            rows.append(row)
    return tuple(rows)


def _reports(loaders: Sequence[LoaderInfo], name: str) -> list[KnobReport]:
    return [report for loader in loaders for report in loader.knobs if report.name == name]


def _row(state: State, name: str, reports: list[KnobReport]) -> KnobRow:
    entry = last_entry(state, name)
    start = (state.setup or {}).get(name)
    start = None if start == SCRIPT else start
    asked = entry.asked[name] if entry and entry.state != "reverted" else start
    word = entry.state if entry and entry.state != "reverted" else "untouched"
    values = {report.in_force for report in reports}
    scripts = {report.script for report in reports}
    if word == "untouched" and start is not None and reports:
        over = _has_begun(training_loaders(state)) or any(not report.can for report in reports)
        word = "kept" if values == {start} else "refused" if over else "queued"
    refused = next((report.reason for report in reports if not report.can), None)
    later = next((report.reason for report in reports if not report.can_now), None)
    return KnobRow(
        name=name,
        script=scripts.pop() if len(scripts) == 1 else None,
        asked=asked,
        in_force=values.pop() if len(values) == 1 else None,
        state=word,
        reason=(entry.reason if entry and entry.state in ("rolled_back", "refused") else None) or refused or later,
        can=bool(reports) and any(report.can for report in reports),
        can_now=bool(reports) and any(report.can and report.can_now for report in reports),
        next=entry.asked[name] if entry and entry.state in ("queued", "applying") else None,
        mixed=len({report.in_force for report in reports}) > 1,
        note=next((report.note for report in reports if report.note), None),
    )


def _has_begun(loaders: Sequence[LoaderInfo]) -> bool:
    """Whether all have handed out a batch, so that what is set from the start is in force by now, or never will be."""
    return all(any(report.in_force is not None for report in loader.knobs) for loader in loaders)


def last_entry(state: State, name: str) -> Entry | None:
    """The newest ledger entry that touches this knob of a training loader."""
    return _newest(state, name, {None, *(loader.id for loader in training_loaders(state))})


def _newest(state: State, name: str, loaders: Set[str | None]) -> Entry | None:
    return next((entry for entry in reversed(state.ledger) if name in entry.asked and entry.loader in loaders), None)


def queued(state: State) -> tuple[Entry, ...]:
    """Changes asked for and not yet in force, oldest first."""
    return tuple(entry for entry in state.ledger if entry.state in ("queued", "applying"))


def tuned_setup(state: State) -> dict[str, Value]:
    """What differs from the script right now, in every training loader alike: the bare knobs of a saved file."""
    loaders = training_loaders(state)
    return {
        row.name: row.in_force
        for row in knob_rows(state)
        if row.in_force is not None
        and any(_is_tuned(state, loader, report) for loader in loaders for report in _reports((loader,), row.name))
    }


def tuned_loaders(state: State) -> dict[str, dict[str, Value]]:
    """The same for single loaders: training loaders that differ from each other, and others that were named."""
    alike = {row.name for row in knob_rows(state) if not row.mixed}
    training = training_loaders(state)
    found: dict[str, dict[str, Value]] = {}
    for loader in state.loaders:
        for report in loader.knobs:
            told_already = report.name in alike if loader in training else _is_passing(state, loader, report)
            if report.in_force is not None and not told_already and _is_tuned(state, loader, report):
                found.setdefault(loader.id, {})[report.name] = report.in_force
    return found


def _is_tuned(state: State, loader: LoaderInfo, report: KnobReport) -> bool:
    """Whether this is not what the script would have, were it run without us."""
    if report.script is not None:
        return report.in_force is not None and report.in_force != report.script
    # it does not apply under the script's own settings (prefetch without workers): only what somebody chose is kept
    entry = _newest(state, report.name, {None, loader.id})
    asked = entry.asked[report.name] if entry else _from_start(state, loader.id).get(report.name)
    return asked is not None and asked == report.in_force


def _is_passing(state: State, loader: LoaderInfo, report: KnobReport) -> bool:
    """Set from the start for all, on a loader that turned out not to train: it is about to be put back."""
    named = _newest(state, report.name, {loader.id}) or report.name in (state.loader_setups or {}).get(loader.id, {})
    return not named and (state.setup or {}).get(report.name) == report.in_force


def _from_start(state: State, loader: str) -> Mapping[str, Value]:
    return {**(state.setup or {}), **(state.loader_setups or {}).get(loader, {})}


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
