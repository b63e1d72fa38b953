"""The panel of knobs: what runs, what is next, and why something cannot be had. One row a knob, and a line below.

Called by the frame. A knob that cannot be changed is grey with its reason; the line below says when a queue lands.
"""

from __future__ import annotations

from cockpit.history import disk, memory
from cockpit.history.boundary import NO_END, boundary_in_s, is_out_of_sight
from cockpit.history.crash import is_waiting, try_words
from cockpit.history.environment import tuned_environment
from cockpit.history.knobs import KnobRow, probe_failed, queued, tuned_setup
from cockpit.history.restart import FIRST_STEP, PREPARING, READY, WAITING, Stage, hands_over, under_way
from cockpit.history.state import State
from cockpit.history.trials import is_restart
from cockpit.model.crash import Crashed
from cockpit.model.knobs import BY_NAME

from .clean import clean
from .footer import wrapped
from .format import clock
from .machine import compile_words
from .now import probe_lost_for
from .rows import Row, Run, cells, cut, fit, row
from .view import View
from .words import label_of, value_words

NAME, VALUE, LONG = 13, 6, 5
NOTE_FROM = 30
"""Columns from which a note on a knob's own row says something."""


def settings_rows(view: View, width: int, most: int) -> list[Row]:
    """Header and one row a knob, at ``most`` that many and the chosen one among them, each ``width`` columns."""
    knobs = view.knobs
    first = max(0, min(view.cursor - most + 2, len(knobs) - most))
    shown = list(enumerate(knobs))[first : first + most]
    place = f"{first + 1}-{first + len(shown)} of {len(knobs)}" if len(shown) < len(knobs) else ""
    beside = min(width, 38) - 27
    head = row(
        ("   SETTINGS", "bold text"),
        ("running".rjust(NAME + VALUE - 8), "dim"),
        (" next", "dim"),
        (place.rjust(beside) if cells(place) < beside else "", "faint"),
    )
    rows = [fit(head, width), *(_knob_row(view, at, knob, width) for at, knob in shown)]
    # knobs of the whole training are told a moment later: nothing below may move then
    return [*rows, *([fit((), width)] * (most + 1 - len(rows)))]


def _knob_row(view: View, at: int, knob: KnobRow, width: int) -> Row:
    chosen, glyphs = at == view.cursor, view.glyphs
    ground = " on-cursor" if chosen else ""
    usable = knob.can or knob.reason is None
    name_style = ("bold text" if chosen else "text" if usable else "faint") + ground
    running = "mixed" if knob.mixed else value_words(knob.in_force, knob.script)
    over = max(0, min(cells(running), VALUE + LONG) - VALUE)
    runs: list[Run] = [
        (glyphs.cursor if chosen else " ", "bold key" + ground),
        (f"{at + 1} " if at < 9 else "0 " if at == 9 else "  ", "faint" + ground),
        # a long value takes from the room of a short name
        (cut(label_of(knob.name), NAME - over).ljust(NAME - over), name_style),
        (cut(running, VALUE + LONG).rjust(VALUE), ("bold text" if chosen else "text" if usable else "faint") + ground),
        (" ", "text" + ground),
        *((text, style + ground) for text, style in _next_runs(view, knob, chosen, width - NAME - VALUE - 4)),
    ]
    return fit(runs, width, "text" + ground)


def _next_runs(view: View, knob: KnobRow, chosen: bool, room: int) -> list[Run]:
    """The right half of a knob's row: what it becomes, what it can do, or why not."""
    following, glyphs = view.next_of(knob), view.glyphs
    if following is None and knob.state == "queued":
        following = knob.asked  # set from the start, and its moment has not come
    if following is not None and following != knob.in_force:
        word = "asked" if knob.name in view.wanted else "applying" if knob.state == "applying" else "queued"
        into = value_words(following, knob.script)
        moves = f"{glyphs.arrow}{into}".ljust(5)
        return [(moves, "bold worse"), (f" {word}" if cells(moves) + cells(word) < room else "", "worse")]
    if knob.state == "refused" and knob.asked is not None:
        return [(f"{value_words(knob.asked, knob.script)} refused", "alarm")]
    if not knob.can:
        return [(cut(clean(knob.reason), room) if knob.reason else "", "faint")]
    if knob.state == "settling":
        return [("settling", "dim")]
    if knob.state == "rolled_back":
        return [("rolled back", "alarm")]
    if chosen and not view.readonly:
        return [
            (f"{glyphs.left} {glyphs.right}", "bold key"),
            ("" if knob.can_now else " next epoch", "dim"),
        ]
    differs = knob.script is not None and knob.in_force is not None and knob.in_force != knob.script
    script = f"script {value_words(knob.script)}" if differs else ""
    left = room - cells(script) - 2
    note = cut(clean(knob.note), left) if knob.note and left >= NOTE_FROM else ""
    return [(script.ljust(cells(script) + 2) if script and note else script, "faint"), (note, "faint")]


def hint_rows(view: View, width: int, height: int) -> list[Row]:
    """The lines below the knobs: what went wrong, else the queue and when it lands, and the chosen knob in words.

    With one line only, a queue takes the place of the words; ``enter`` tells all of them.
    """
    room = max(0, width - 3)
    first: list[Run] = []
    state, trouble = view.known, trouble_words(view)
    asked = {name for entry in queued(state) if not is_restart(entry) for name in entry.asked} | set(view.wanted)
    stage = under_way(state)
    if trouble:
        first = [(cut(trouble, room), "alarm")]
    elif stage is not None:
        first = _restart_runs(state, stage, len(asked))
    elif state.crash is not None:
        first = _crash_runs(state, state.crash, view.now_s)
    elif asked and state.phase in ("running", "paused"):
        first = _queue_runs(view, len(asked))
    elif state.phase in ("ended", "lost"):
        first = [(cut(ended_words(state), room), "dim")]
    left = height - bool(first)
    lines = wrapped(about_words(view), max(8, room)) if left > 0 else []
    if len(lines) > left:
        lines = [*lines[: left - 1], cut(" ".join(lines[left - 1 :]), max(0, room - len(MORE))) + MORE] if left else []
    rows = [*([first] if first else []), *([(line, "dim")] for line in lines)]
    return [fit([("   ", "text"), *each], width) for each in [*rows, *([()] * height)][:height]]


MORE = " (enter)"


def about_words(view: View) -> str:
    """The chosen knob in a sentence or two: why not, what to mind, else what it does."""
    if not view.knobs:
        return ""
    knob = view.knobs[view.cursor]
    told = [clean(knob.reason or ""), clean(knob.note or "")]
    if knob.name == "compile":
        told.append(compile_words(view.known))
    return "; ".join(words for words in told if words) or BY_NAME[knob.name].help


def trouble_words(view: View) -> str:
    """What is wrong with our own sight of the run, in one sentence; empty when nothing is."""
    if view.link_lost_s is not None:
        return "the engine does not answer; the training is not affected; trying again every second"
    if probe_lost_for(view) is not None:
        return "the training is no longer heard: what is shown in grey is old"
    return disk.words(view.known) or memory.words(view.known) or ""


def ended_words(state: State) -> str:
    """What is left when the training is over."""
    if full := disk.words(state):
        return f"status {state.exit_status}: {full}"
    if state.phase == "lost":
        return "the training is gone and left no exit status"
    if state.survivors:
        return f"still running, left alone: {clean(', '.join(state.survivors))}"
    save = "s saves its setup, " if tuned_setup(state) or tuned_environment(state) else ""
    return f"the training ended with status {state.exit_status}; {save}q leaves"


def _restart_runs(state: State, stage: Stage, count: int) -> list[Run]:
    words = {PREPARING: "a process gets ready", READY: hands_over(state), FIRST_STEP: "its first step is awaited"}
    words[WAITING] = "after its next checkpoint"
    also = f"; {count} queued" if count else ""
    told: list[Run] = [("restart ", "bold worse"), (words.get(stage.word, stage.word) + also, "worse")]
    return [
        *told,
        ("  r", "bold key"),
        (" view ", "dim"),
        *([("u", "bold key"), (" drop", "dim")] if stage.can_drop else []),
    ]


def _crash_runs(state: State, crash: Crashed, now_s: float) -> list[Run]:
    """What a key can do about it; the whole story stands in the view of restarts."""
    told: list[Run] = [("crashed ", "bold alarm")]
    if is_waiting(state):
        told.append((try_words(crash, now_s), "worse"))
        return [*told, ("  r", "bold key"), (" why, or now ", "dim"), ("u", "bold key"), (" drop", "dim")]
    told.append((cut(clean(crash.reason or crash.cause), 40), "worse"))
    return [
        *told,
        ("  r", "bold key"),
        (" goes on" if crash.offered else " why", "dim"),
        ("  q", "bold key"),
        (" leaves", "dim"),
    ]


def _queue_runs(view: View, count: int) -> list[Run]:
    state = view.known
    landing = (f"{count} queued", "bold worse"), (f", {landing_words(state)}", "worse")
    if any(entry.state == "applying" for entry in state.ledger):
        return list(landing)
    together = " can't be told apart" if count > 1 else ""
    return [
        *landing,
        ("  a", "bold key"),
        (" now ", "dim"),
        ("u", "bold key"),
        (" drop ", "dim"),
        (together, "dim"),
    ]


def landing_words(state: State) -> str:
    """When the queue comes into force."""
    if any(entry.state == "applying" for entry in state.ledger):
        return "being applied"
    if state.phase == "paused":
        return "when it goes on"
    if any(entry.now and entry.state == "queued" for entry in state.ledger):
        return "lands with the next batch"
    if probe_failed(state):
        return "cannot land: the probe failed"
    if is_out_of_sight(state):
        return NO_END
    in_s = boundary_in_s(state)
    return "at the next epoch" if in_s is None else f"at the next epoch in {clock(in_s)}"
