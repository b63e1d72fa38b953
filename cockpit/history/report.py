"""What a run was: what was tried, what it gave, what held it back. As one JSON object, and as text for people.

Made from a state alone, so the report of a running training and of one that ended a week ago are the same thing.
It repeats no figure that the state does not hold, and writes – for what was not measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from cockpit.analysis.compare import WORDS
from cockpit.analysis.policy import POLICY
from cockpit.model.counts import counted
from cockpit.model.knobs import UNSET, show_value

from . import compiled, crash, disk, handoffs, memory, ranks
from .activity import words_of
from .ends import ENDED
from .environment import tuned_environment
from .knobs import knob_rows, not_applied, tuned_loaders, tuned_setup
from .measure import phases_of
from .pause import paused_for_s
from .save import measured_now
from .spans import duration as duration
from .state import LEDGER_LONGEST, Entry, Phases, State
from .status import rounded, status_of
from .trials import UNCOUNTED, is_idle, uncounted

AGAIN = {"undo": "taking back", "redo": "once more", "schedule": "scheduled", "crash": "after a crash"}
"""Where a change came from, if not from somebody's asking for it by name."""
WAIT_SHARE_TOLD = 0.10
"""Waiting less than this share of a step is not called holding back."""


def report_of(state: State, now_s: float) -> dict[str, Any]:
    """The status object with ``summary`` beside it."""
    return {**status_of(state, now_s), "summary": rounded(summary_of(state))}


def summary_of(state: State) -> dict[str, Any]:
    """Baseline, the best that was measured, their ratio, and the saved file; null where not measured."""
    best = best_entry(state)
    base = state.baseline.samples_per_s if state.baseline else None
    per_s = best.after_samples_per_s if best else base
    return {
        "baseline": {"samples_per_s": base, "windows": state.baseline.windows} if state.baseline else None,
        "best": {
            "samples_per_s": per_s,
            "id": best.id if best else None,
            "at_step": best.at_step if best else None,
        }
        if per_s is not None
        else None,
        "factor": per_s / base if per_s is not None and base else None,
        "setup": setup_of(state),
        "environment": tuned_environment(state),
        "changes": len(state.ledger),
        "saved": state.saved_path,
    }


def setup_of(state: State) -> dict[str, Any]:
    """What differs from the script, named as in a saved file: ``num_workers``, ``train.py:52:num_workers``."""
    single = (
        (f"{loader}:{knob}", value) for loader, knobs in tuned_loaders(state).items() for knob, value in knobs.items()
    )
    return {**tuned_setup(state), **dict(single)}


def best_entry(state: State) -> Entry | None:
    """The kept or reverted change with the highest measured rate, if that beats the baseline; None: none does."""
    base = state.baseline.samples_per_s if state.baseline else None
    tried = [e for e in state.ledger if e.state in ("kept", "reverted") and e.after_samples_per_s and not is_idle(e)]
    best = max(tried, key=lambda entry: entry.after_samples_per_s or 0.0, default=None)
    if best is None or (base is not None and (best.after_samples_per_s or 0.0) <= base):
        return None
    return best


def best_words(state: State, best: Entry) -> str:
    """What the best ran with: the change that brought it, or that it took all changes back, and is no merit of one."""
    began: dict[tuple[str | None, str], Any] = {}
    held = {}
    for entry in state.ledger[: state.ledger.index(best) + 1] if len(state.ledger) < LEDGER_LONGEST else ():
        if entry.state in ("settling", "kept", "reverted"):
            for name, (old, new) in (entry.change or {}).items():
                began.setdefault((entry.loader, name), old)
                held[entry.loader, name] = new
    if held and held == began:
        return "as it began, all changes taken back"
    return f"with {words_of(best)}{flags_words(best)}"


def better_words(state: State) -> str | None:
    """That what runs now is not the fastest that was seen, so that nobody saves it for that; None where it is."""
    now_per_s, _ = measured_now(state)
    base, best = state.baseline.samples_per_s if state.baseline else None, best_entry(state)
    best_per_s = best.after_samples_per_s if best else base
    if now_per_s is None or best_per_s is None or best_per_s <= now_per_s * (1.0 + POLICY.clear_pct / 100.0):
        return None
    which = best_words(state, best) if best else "before anything was changed"
    return f"what runs now gives {rate_words(now_per_s)} samples/s; the best seen was {rate_words(best_per_s)} {which}"


def text_of(state: State, now_s: float) -> list[str]:
    """The report as lines of text."""
    lines = [headline(state, now_s), ""]
    if found := ranks.lines(state, now_s):
        lines += ["Ranks", *[f"  {line}" for line in found], ""]
    lines += ["Tried"]
    lines += [f"  {line}" for line in map(trial_line, state.ledger)] or ["  nothing was changed"]
    lines += ["", "Gave", *[f"  {line}" for line in gain_lines(state)]]
    lines += ["", "Held it back", *[f"  {line}" for line in held_back(state)]]
    if written := handoffs.words(state, now_s):
        lines += ["", f"Hand-offs: {written}"]
    if low := disk.words(state):
        lines += ["", f"Its disk: {low}"]
    if grows := memory.words(state):
        lines += ["", f"Its memory: {grows}"]
    if crashed := crash.words(state, now_s):
        lines += ["", f"Crashed: {crashed}"]
    if state.survivors:
        lines += ["", f"Left running: {', '.join(state.survivors)}"]
    return lines


def headline(state: State, now_s: float) -> str:
    """Name, command, end and length of the run, in one line."""
    began, ended = state.started_s, state.ended_s or now_s
    took = f" after {duration(ended - began)}" if began is not None else ""
    how = {
        "ended": f"ended with status {state.exit_status}{took}",
        "lost": f"lost: its exit status is not known{took}",
        "paused": f"paused for {duration(paused_for_s(state, now_s) - state.paused_s)}{took}",
    }.get(state.phase, f"{state.phase}{took.replace(' after', ' for')}")
    paused_s = paused_for_s(state, now_s)
    if paused_s and state.phase != "paused":
        how += f", {duration(paused_s)} of it paused"
    return f"{state.run} · {state.script or ' '.join(state.argv)} · {how} · {steps_words(state)}"


def steps_words(state: State) -> str:
    """How far it has come: ``epoch 3, step 1234``, or after the end ``1234 steps``."""
    if state.step is None:
        return "no step seen"
    if state.phase in ("ended", "lost"):
        return counted(state.step, "step")
    return f"epoch {show_value(state.epoch)}, step {state.step}"


def trial_line(entry: Entry) -> str:
    """One change with its outcome: ``num_workers 0→4 · step 96 · kept · 318 → 601 samples/s · +89.1 % [+80, +97] faster
    · stall 104 ms``."""
    parts = [words_of(entry)]
    if entry.loader:
        parts[0] += f" ({entry.loader})"
    if entry.at_step is not None:
        parts.append(f"step {entry.at_step}")
    if entry.origin in AGAIN:
        parts.append(AGAIN[entry.origin])
    parts.append(entry.state.replace("_", " "))
    if entry.before_samples_per_s is not None or entry.after_samples_per_s is not None:
        parts.append(f"{rate_words(entry.before_samples_per_s)} → {rate_words(entry.after_samples_per_s)} samples/s")
    if entry.landed_s is not None and entry.state not in ("rolled_back", ENDED, entry.verdict):
        parts.append(delta_words(entry))
    if entry.stall_ms is not None:
        parts.append(f"stall {entry.stall_ms:.0f} ms")
    if told := compiled.words(entry.compiled_s, entry.graphs, entry.recompiles):
        parts.append(told)
    if entry.note:
        parts.append(f"said before: {entry.note}")
    if entry.reason:
        parts.append(entry.reason)
    return " · ".join(parts)


def delta_words(entry: Entry) -> str:
    """Difference, interval, verdict and what else may have made it: ``+38.0 % [+29, +49] faster``; only the word where
    there is no figure."""
    word = WORDS.get(entry.verdict, entry.verdict)
    if entry.delta_pct is None or entry.interval_pct is None:
        return f"{word}: {UNCOUNTED}" if uncounted(entry) else word
    low, high = entry.interval_pct
    return f"{entry.delta_pct:+.1f} % [{low:+.0f}, {high:+.0f}] {word}{flags_words(entry)}"


def flags_words(entry: Entry) -> str:
    """``, but other programs used …``: what stands behind a figure that others may have caused; nothing else."""
    return "".join(f", but {flag.words}" for flag in entry.flags)


def why_no_baseline(state: State) -> str:
    """What kept the first windows from having a rate."""
    segments = [state.current] + ([state.previous] if state.previous else [])
    blocks = [block for segment in segments for block in segment.blocks]
    if blocks and all(block.samples is None for block in blocks):
        return UNCOUNTED
    return "the run was changed or over before its second window"


def gain_lines(state: State) -> list[str]:
    """Baseline, best, factor, saved file."""
    summary = summary_of(state)
    base, best, entry = summary["baseline"], summary["best"], best_entry(state)
    lines = [f"baseline {rate_words(base['samples_per_s'] if base else None)} samples/s"]
    if base is None:
        lines[0] += f" (not measured: {why_no_baseline(state)})"
    if best and entry:
        factor = f", ×{summary['factor']:.2f}" if summary["factor"] else ""
        lines.append(f"best {rate_words(best['samples_per_s'])} samples/s{factor}, {best_words(state, entry)}")
    elif base:
        tried = any(entry.after_samples_per_s for entry in state.ledger)
        lines.append("best: nothing measured better than the baseline" if tried else "best: nothing else was measured")
    variables = {name: UNSET if text is None else text for name, text in summary["environment"].items()}
    lines.append(setup_words({**summary["setup"], **variables}))
    notes = [
        (row.name, row.in_force, row.note) for row in knob_rows(state) if row.name in summary["setup"] and row.note
    ]
    lines += [f"  {name} {show_value(value)}: {note}" for name, value, note in notes]
    if state.saved_path:
        lines.append(f"saved to {state.saved_path}")
    return lines


def setup_words(setup: Mapping[str, Any]) -> str:
    """The setup in force as words."""
    pairs = ", ".join(f"{name} {show_value(value)}" for name, value in setup.items())
    return f"in force: {pairs}" if pairs else "in force: everything as the script has it"


def held_back(state: State) -> list[str]:
    """Where a step's time went at first and last, and what could not be done."""
    first = state.baseline.phases if state.baseline else None
    last = phases_of(state.current.blocks)
    now = "at the end" if state.phase in ("ended", "lost") else "now"
    lines = [
        f"{when}: {share}"
        for when, phases in (("at the baseline", first), (now, last))
        if phases is not None and (share := wait_words(phases))
    ]
    lines += [
        f"{words_of(entry)}: {entry.state.replace('_', ' ')}: {entry.reason}"
        for entry in state.ledger
        if entry.state in ("refused", "rolled_back", ENDED) and entry.reason
    ]
    lines += [f"{words}, asked for from the start: {reason}" for words, reason in not_applied(state).items()]
    if state.probe_reason is not None:
        lines.append(f"nothing of it was seen: {state.probe_reason}")
    if state.step is None and state.exit_status and state.output is not None and state.output.line:
        ended = f"it ended with status {state.exit_status} before its first step"
        lines.append(f"{ended}; its last line: {state.output.line}")
    whole = state.compiled
    if whole is not None and (told := compiled.words(whole.total_s, whole.graphs, whole.recompiles)):
        lines.append(f"torch {told}: in no figure of a step or an epoch")
    if state.events_dropped:
        lost = counted(state.events_dropped, "message of the probe was", "messages of the probe were")
        lines.append(f"{lost} lost: figures may miss their part")
    unseen = "no step was measured" + (" under the settings in force" if state.ledger else "")
    return lines or [unseen if last is None and first is None else "nothing that could be measured"]


def wait_words(phases: Phases) -> str | None:
    """The loader's part of a step, where it is worth telling."""
    if phases.wait_ms is None or phases.step_ms <= 0:
        return None
    share = (phases.wait_ms + phases.start_ms) / phases.step_ms
    if share < WAIT_SHARE_TOLD:
        return f"the loader hardly: {100 * share:.0f} % of a step of {phases.step_ms:.1f} ms"
    return f"waiting for the loader, {100 * share:.0f} % of a step of {phases.step_ms:.1f} ms"


def again_words(state: State, path: str) -> str:
    """The command that starts the same training with the setup saved in ``path``."""
    ours = len(state.argv) > 1 and state.argv[1] == state.script
    words = state.argv[1:] if ours else ("--", *state.argv)
    return shlex.join(("cockpit", "run", "--config", path, *words))


def rate_words(per_s: float | None) -> str:
    """Samples per second with three figures that count; – where not measured."""
    if per_s is None:
        return "–"
    return f"{per_s:.0f}" if per_s >= 100 else f"{per_s:.1f}" if per_s >= 10 else f"{per_s:.2f}"
