"""The state as the JSON object that ``cockpit status --json`` and ``report --json`` promise.

Other people's tools rely on these keys (see the README): more may be added, none renamed. null = not measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cockpit.model.events import KnobReport, LoaderInfo
from cockpit.model.knobs import SCRIPT
from cockpit.model.names import SCHEMA

from . import compiled, crash, disk, handoffs, memory, pause, ranks
from .activity import activity_of
from .ends import ENDED
from .environment import tuned_environment
from .gpu import gpus_of, uses_gpu
from .knobs import KnobRow, knob_rows, training_loaders
from .measure import live_rate, recent_phases
from .state import Entry, State


def status_of(state: State, now_s: float) -> dict[str, Any]:
    """The whole state of a run, in plain JSON values, as of ``now_s``."""
    told: dict[str, Any] = rounded(_status(state, now_s))
    return told


def rounded(value: Any) -> Any:
    """Plain values with floats to three decimals: more are noise to every reader."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def _status(state: State, now_s: float) -> dict[str, Any]:
    activity = activity_of(state, now_s, for_badge=False)
    phases = recent_phases(state.current)
    baseline = state.baseline
    return {
        "schema": SCHEMA,
        "run": state.run,
        "state": state.phase,
        "pid": state.pid,
        "exit_status": state.exit_status,
        "activity": activity.word if state.phase == "running" else None,
        "activity_s": activity.for_s,
        "stalled_in": activity.detail.removeprefix("in ") if activity.word == "stalled" and activity.detail else None,
        "pause": pause.plain(state),
        "crash": crash.plain(state),
        "handoff": handoffs.plain(state, now_s),
        "paused_s": pause.paused_for_s(state, now_s),
        "epoch": state.epoch,
        "step": state.step,
        "optimizer_steps": state.optimizer_steps,
        "probe": state.probe,
        "probe_reason": state.probe_reason,
        "epoch_s": {"now": state.current.epoch_s, "baseline": baseline.epoch_s if baseline else None},
        "samples_per_s": live_rate(state),
        "baseline_samples_per_s": baseline.samples_per_s if baseline else None,
        "phases_ms": {
            "wait": phases.wait_ms if phases else None,
            "start": phases.start_ms if phases and phases.wait_ms is not None else None,
            "copy": None,
            "forward": phases.forward_ms if phases else None,
            "backward": phases.backward_ms if phases else None,
            "optimizer": phases.optimizer_ms if phases else None,
            "other": phases.other_ms if phases else None,
            "compile_total": _ms(state.compiled.total_s) if state.compiled else None,
        },
        "compile": compiled.status(state),
        "loaders": [_loader(state, loader) for loader in state.loaders],
        "knobs": {
            row.name: {
                "script": row.script,
                "asked": row.asked,
                "in_force": row.in_force,
                "state": row.state,
                "reason": row.reason,
                "note": row.note,
                "can": row.can,
                "can_now": row.can_now,
            }
            for row in knob_rows(state)
        },
        "environment": tuned_environment(state),
        "ledger": [ledger_line(entry) for entry in state.ledger],
        "findings": _findings(state, now_s),
        "ceilings": {"model_samples_per_s": None, "data_samples_per_s": None},
        "ranks": ranks.rows(state, now_s, phases.wait_ms if phases else None, live_rate(state)),
        "figures_of": ranks.headline(state),
        "machine": {
            "cpus_usable": state.machine.cpus_usable if state.machine else None,
            "cpus_limited_by": state.machine.cpus_limited_by if state.machine else None,
            "gpus": gpus_of(state, now_s),
            "uses_gpu": uses_gpu(state),
            "disk_free_bytes": state.disk_free_bytes,
            **memory.plain(state),
            "gpu_trouble": state.gpu.trouble if state.gpu else None,
        },
        "probe_overhead_us_per_step": None,
        "events_dropped": state.events_dropped,
        "survivors": list(state.survivors),
    }


def _findings(state: State, now_s: float) -> list[dict[str, Any]]:
    found = (disk.finding(state), memory.finding(state), handoffs.finding(state, now_s))
    return [each for each in found if each]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000.0 * seconds


def _loader(state: State, loader: LoaderInfo) -> dict[str, Any]:
    # the probe looks at one queue at a time: with workers behind several loaders, nobody can say whose it was
    with_workers = [each for each in training_loaders(state) if each.workers or each.capacity]
    latest = state.latest if with_workers == [loader] else None
    return {
        "id": loader.id,
        "role": loader.role,
        "kind": loader.kind,
        "epochs": loader.epochs,
        "steps_per_epoch": loader.steps_per_epoch,
        "batch_size": loader.batch_size,
        "samples_by_epoch": list(loader.samples_by_epoch),
        "knobs": {report.name: report.in_force for report in loader.knobs},
        "reasons": {report.name: report.reason for report in loader.knobs if report.reason},
        "workers_alive": len(loader.workers),
        "queue": list(latest.queue) if latest and latest.queue else None,
        "epoch_start_ms": loader.epoch_start_ms,
        "unfed": loader.unfed,
        "wait_kind": ("read_ahead" if loader.read_ahead else latest.wait_kind if latest else None),
    }


def found_of(state: State, entry: Entry) -> dict[str, Any]:
    """What is in force now of the knobs that a change asked for, by knob, and what is to be known about it."""

    def note(row: KnobRow | KnobReport) -> str | None:
        # what a knob does is no news of a change back to what the script has
        return None if entry.asked[row.name] in (SCRIPT, row.script) else row.note

    return {
        row.name: {"asked": entry.asked[row.name], "in_force": row.in_force, "reason": row.reason, "note": note(row)}
        for row in _rows_of(state, entry)
    }


def is_so_without(state: State, entry: Entry) -> bool:
    """Whether all that a change asks for is in force already."""
    rows = _rows_of(state, entry)
    wanted = {row.name: row.script if entry.asked[row.name] == SCRIPT else entry.asked[row.name] for row in rows}
    return len(rows) == len(entry.asked) and all(row.in_force == wanted[row.name] for row in rows)


def _rows_of(state: State, entry: Entry) -> list[KnobRow | KnobReport]:
    named = next((loader for loader in state.loaders if loader.id == entry.loader), None)
    told: Iterable[KnobRow | KnobReport] = named.knobs if named is not None else knob_rows(state)
    return [row for row in told if row.name in entry.asked]


OUTCOMES = {"kept": "kept", "rolled_back": "rolled_back", "reverted": "reverted", "refused": "refused", ENDED: ENDED}


def ledger_line(entry: Entry) -> dict[str, Any]:
    """One change as JSON; ``outcome`` is null while it is pending or settling.

    ``ended``: the training has ended under it, and not as it should: the reason says how.
    """
    return {
        "id": entry.id,
        "at_step": entry.at_step,
        "change": {name: list((entry.change or {}).get(name, (None, value))) for name, value in entry.asked.items()},
        "origin": entry.origin,
        "state": entry.state,
        "outcome": OUTCOMES.get(entry.state),
        "reason": entry.reason,
        "note": entry.note,
        "stall_ms": entry.stall_ms,
        "before": {"samples_per_s": entry.before_samples_per_s, "windows": entry.before_windows},
        "after": {"samples_per_s": entry.after_samples_per_s, "windows": entry.after_windows},
        "compiled": compiled.trial(entry),
        "delta_pct": entry.delta_pct,
        "interval_pct": list(entry.interval_pct) if entry.interval_pct else None,
        "verdict": entry.verdict,
        "flags": [flag.words for flag in entry.flags],
    }
