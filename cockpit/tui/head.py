"""Rows 1 to 3, the same at every size: what runs and its badge, how fast it is, and what the last change gave.

Called by the frame. The badge is never clipped and the figures keep their places; what gives way is the words.
"""

from __future__ import annotations

from pathlib import PurePath

from cockpit.analysis.compare import NOT_COMPARABLE, SETTLING, WORDS
from cockpit.analysis.policy import POLICY
from cockpit.history.activity import BADGES, Activity, activity_of
from cockpit.history.knobs import probe_failed, training_loaders
from cockpit.history.measure import live_rate
from cockpit.history.ranks import headline
from cockpit.history.state import Entry, State
from cockpit.history.trials import UNCOUNTED, is_idle, uncounted
from cockpit.model.counts import noun

from .clean import clean
from .format import NOTHING, clock, count, delta, factor, interval, rate, reach, seconds, share
from .now import phases_now, probe_lost_for
from .rows import Row, Run, cells, clip, cut, first_that_fits, fit, row, width_of
from .view import View
from .words import knobs_of

BADGE_STYLES = {
    "steady": "better",
    "measuring": "better",
    "warming": "dim",
    "switching": "worse",
    "rolled_back": "alarm",
    "stalled": "alarm",
    "lost": "alarm",
    "paused": "worse",
    "stopping": "worse",
    "ended": "text",
}


def activity_shown(view: View) -> Activity:
    """What the badge says: a lost link or probe before anything that the state claims."""
    state = view.known
    if view.link_lost_s is not None:
        return Activity("lost", max(0.0, view.now_s - view.link_lost_s), detail="engine")
    if view.state is None:
        return Activity("starting")
    lost_s = probe_lost_for(view)
    if lost_s is not None:
        return Activity("lost", lost_s, detail="probe")
    if state.phase == "running" and state.probe == "waiting":
        since_s = None if state.started_s is None else view.now_s - state.started_s
        # one that failed is not waited for: the training may be well under way
        return Activity("lost", since_s, detail="probe") if probe_failed(state) else Activity("starting", since_s)
    return activity_of(state, view.now_s)


def badge(view: View) -> list[Run]:
    """Glyph, word and how far or how long: ``◔ WARMING UP 12/30``, ``⚠ STALLED in loader 0:31``."""
    shown = activity_shown(view)
    mark = BADGES[shown.word]
    words = mark.word
    if shown.word in ("warming", "measuring") and shown.total:
        words += f" {min(shown.done or 0, shown.total)}/{shown.total}"
    elif shown.word == "ended":
        status = view.known.exit_status
        words += "" if status is None else f" exit {status}"
    elif (shown.word == "lost" and shown.detail) or shown.word == "stalled":
        words += f" {shown.detail} {clock(shown.for_s)}"
    elif shown.word == "stopping" and view.known.stopping_until_s is not None:
        words += f" {clock(view.known.stopping_until_s - view.now_s)}"
    elif shown.word == "compiling" and shown.for_s is not None:
        words += f" {shown.for_s:.0f} s"
    elif shown.word in ("switching", "rolled_back", "paused") and shown.for_s is not None:
        words += f" {clock(shown.for_s)}"
    glyph = mark.ascii if view.glyphs.plain else mark.glyph
    return [(f"{glyph} {words} ", f"bold {BADGE_STYLES.get(shown.word, 'text')} on-bar")]


def title_row(view: View, width: int) -> Row:
    """Row 1: the script, epoch and step with their progress, and the badge at the right edge.

    Each piece has a fixed length, and all from the first that finds no room are left out: nothing moves.
    """
    state, right = view.known, badge(view)
    room = max(0, width - width_of(right))
    total = steps_per_epoch(state)
    done = count(state.step_in_epoch if total else state.step)
    long = width >= EPOCH_IN_ROW_2
    pieces: list[list[Run]] = [
        [("   epoch ", "dim on-bar"), (count(state.epoch), "text on-bar")],
        [("  step ", "dim on-bar"), (done.rjust(len(count(total)) if total else 0), "text on-bar")],
        [(f"/{count(total)}", "dim on-bar")] if total else [],
        progress(state, total, 24 if long else 10, view),
        [(f"  {epoch_words(state)}", "dim on-bar")] if epoch_words(state) and not long else [],
    ]
    left: list[Run] = [(cut(f" {script_of(state)}", min(max(0, room - 1), 24)), "bold text on-bar")]
    for piece in pieces:
        if width_of([*left, *piece]) + 1 > room:
            break
        left += piece
    return row(*fit(left, room, "text on-bar"), *clip(right, width))


EPOCH_IN_ROW_2 = 104
"""From this width on, row 2 has room for how long an epoch takes."""


def script_of(state: State) -> str:
    """The training's short name: its script, else the first word of its command."""
    return clean(PurePath(state.script or (state.argv[0] if state.argv else "")).name or state.run or "training")


def steps_per_epoch(state: State) -> int | None:
    """Steps of an epoch of the one loader that trains; None where there are several, or it has no length."""
    lengths = {loader.steps_per_epoch for loader in training_loaders(state)}
    return lengths.pop() if len(lengths) == 1 else None


def progress(state: State, total: int | None, width: int, view: View) -> list[Run]:
    """How far the epoch is, as a line; nothing where that is not known."""
    if not total or state.step_in_epoch is None or width < 6:
        return []
    done = round(width * max(0.0, min(1.0, state.step_in_epoch / total)))
    return [
        ("  ", "text on-bar"),
        (view.glyphs.bar * done, "better on-bar"),
        ((view.glyphs.rest if view.glyphs.plain else view.glyphs.bar) * (width - done), "line on-bar"),
    ]


def epoch_words(state: State) -> str:
    """What a change is worth in a person's time: an epoch ``takes 12:04, was 1:11:10``."""
    took, was = state.current.epoch_s, state.baseline.epoch_s if state.baseline else None
    if took is None:
        return ""
    return f"takes {clock(took)}" + (f", was {clock(was)}" if was is not None and state.ledger else "")


def speed_row(view: View, width: int) -> Row:
    """Row 2: samples per second now, the baseline, the factor since the start, the share of a step spent waiting."""
    state = view.known
    now, base = live_rate(state), state.baseline.samples_per_s if state.baseline else None
    gain = now / base if now is not None and base else None
    phases = phases_now(state)
    waits = phases.wait_ms / phases.step_ms if phases and phases.wait_ms is not None and phases.step_ms > 0 else None
    better = "text" if gain is None or 0.97 < gain < 1.03 else "better" if gain > 1 else "worse"
    grey = activity_shown(view).word in ("warming", "paused", "ended", "lost", "starting")
    size, whose = 8, headline(state)
    runs: list[Run] = [
        (rate(now, size), "dim" if grey else "bold text"),
        (" samples/s", "dim"),
        (f" {whose}" if whose else "", "text"),
        ("  baseline ", "dim"),
        (rate(base).ljust(6), "text"),
        (" since start ", "dim"),
        (factor(gain, view.glyphs.times).ljust(6), f"bold {better}"),
    ]
    wait: list[Run] = [
        (" data wait ", "dim"),
        (share(waits, 4), f"bold {'wait' if (waits or 0) >= 0.1 else 'text'}"),
    ]
    took = epoch_words(state)
    return fit(
        first_that_fits(
            width,
            [*runs, *wait, (" of a step", "dim"), ("   epoch " if took else "", "dim"), (took, "text")],
            [*runs, *wait, (" of a step", "dim")],
            [*runs, *wait],
            [*runs, (" wait ", "dim"), wait[1]],
            [runs[0], (" samples/s ", "dim"), runs[-1], *wait],
        ),
        width,
    )


def change_row(view: View, width: int) -> Row:
    """Row 3: the last change that was measured, and what it gave. It stays until a newer one says something."""
    entry = last_told(view.known)
    if entry is None:
        return fit([(" last change ", "dim"), (NOTHING, "dim"), *_invitation(view)], width)
    figures, steps = verdict_runs(entry, view), _steps_runs(entry, view.known)
    rates: list[Run] = []
    if entry.before_samples_per_s is not None and entry.after_samples_per_s is not None:
        arrow = view.glyphs.arrow
        rates = [(f"  {rate(entry.before_samples_per_s)}{arrow}{rate(entry.after_samples_per_s)}", "text")]
    words = knobs_of(entry, view)
    for lead, tail in (
        (" last change ", [*figures, *rates, *steps]),
        (" last ", [*figures, *rates, *steps]),
        (" last ", [*figures, *rates]),
        (" ", figures),
    ):
        room = width - cells(lead) - width_of(tail) - 2
        if room >= cells(words) or lead == " ":
            break
    room = max(room, min(cells(words), width // 3))  # a long reason must not push out what it is about
    return fit([(lead, "dim"), (cut(words, room), "bold text"), ("  ", "dim"), *tail], width)


def _invitation(view: View) -> list[Run]:
    if view.state is None or view.known.phase != "running" or not training_loaders(view.known):
        return []
    return [("   arrow keys change a setting while it runs", "faint")]


def last_told(state: State) -> Entry | None:
    """The newest change that came into force or failed; a change that only waits does not push it off the screen."""
    return next((entry for entry in reversed(state.ledger) if entry.state not in ("queued", "applying")), None)


def mark_of(entry: Entry, view: View) -> tuple[str, str]:
    """Arrow and style of a change: up and better, down and worse, or neither.

    Without a colour where it may be others' doing."""
    glyphs = view.glyphs
    if entry.flags and entry.delta_pct is not None:
        return {"faster": glyphs.better, "slower": glyphs.worse}.get(entry.verdict, glyphs.same), "dim"
    known = {"faster": (glyphs.better, "better"), "slower": (glyphs.worse, "worse")}
    return known.get(entry.verdict, (glyphs.same if entry.delta_pct is not None else glyphs.dot, "dim"))


def verdict_runs(entry: Entry, view: View) -> list[Run]:
    """``▲ +37.7% ±1.4 [+36, +39] faster``, or the one word that says why there is no figure."""
    word = WORDS.get(entry.verdict, entry.verdict)
    if entry.state in ("refused", "rolled_back", "ended"):
        reason = clean(entry.reason or "no reason given")
        return [(f"{entry.state.replace('_', ' ')}", "bold alarm"), (f": {reason}", "dim")]
    if entry.verdict == NOT_COMPARABLE:
        if is_idle(entry):
            return [(clean(entry.reason or ""), "dim")]
        if uncounted(entry):
            return [(f"{word} ({UNCOUNTED})", "dim")]
        if entry.before_windows < POLICY.windows_before:
            return [(f"{word} ({entry.before_windows}/{POLICY.windows_before} windows before)", "dim")]
        return [(f"{word} ({clean(entry.reason) if entry.reason else 'too little after it'})", "dim")]
    if entry.verdict == SETTLING or entry.delta_pct is None:
        figure = f" {delta(entry.delta_pct)} so far" if entry.delta_pct is not None else ""
        return [(f"{word} {entry.settled_steps}/{entry.settle_steps}", "text"), (figure, "dim")]
    mark, style = mark_of(entry, view)
    return [
        (f"{mark} {delta(entry.delta_pct)}", f"bold {style}"),
        (f" {reach(entry.interval_pct)} {interval(entry.interval_pct)} ", "dim"),
        (word, f"bold {style}"),
        *((f", but {flag.name}", "text") for flag in entry.flags),
    ]


def _steps_runs(entry: Entry, state: State) -> list[Run]:
    """On how many steps the figure rests, while that is known, and what compiling took apart from them."""
    compiled: list[Run] = [(f"  compiled {seconds(entry.compiled_s)}", "dim")] if entry.compiled_s else []
    if state.current.change != entry.id or entry.state not in ("kept", "settling"):
        return compiled
    steps = sum(block.steps for block in state.current.blocks)
    return [(f"  {count(steps)} {noun(steps, 'step')}", "dim"), *compiled]
