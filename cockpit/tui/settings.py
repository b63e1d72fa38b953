"""The panel of knobs: what runs, what is next, and why something cannot be had. One row a knob, and a line below.

Called by the frame. A knob that cannot be changed is grey with its reason; the line below says when a queue lands.
"""

from __future__ import annotations

from cockpit.model.knobs import BY_NAME
from cockpit.session.knobs import KnobRow, queued, training_loaders, tuned_setup
from cockpit.session.state import State

from .clean import clean
from .format import clock
from .now import boundary_in_s, probe_lost_for
from .rows import Row, Run, cut, fit, row
from .view import View
from .words import label_of, value_words

NAME, VALUE = 13, 6


def settings_rows(view: View, width: int, most: int) -> list[Row]:
    """Header and one row a knob, at ``most`` that many and the chosen one among them, each ``width`` columns."""
    knobs = view.knobs
    first = max(0, min(view.cursor - most + 2, len(knobs) - most))
    shown = list(enumerate(knobs))[first : first + most]
    place = f"{first + 1}-{first + len(shown)} of {len(knobs)}" if len(shown) < len(knobs) else ""
    head = row(
        ("   SETTINGS", "bold text"),
        ("running".rjust(NAME + VALUE - 8), "dim"),
        (" next", "dim"),
        (place.rjust(max(0, min(width, 38) - 27)), "faint"),
    )
    return [fit(head, width), *(_knob_row(view, at, knob, width) for at, knob in shown)]


def _knob_row(view: View, at: int, knob: KnobRow, width: int) -> Row:
    chosen, glyphs = at == view.cursor, view.glyphs
    ground = " on-cursor" if chosen else ""
    usable = knob.can or knob.reason is None
    name_style = ("bold text" if chosen else "text" if usable else "faint") + ground
    running = "mixed" if knob.mixed else value_words(knob.in_force)
    runs: list[Run] = [
        (glyphs.cursor if chosen else " ", "bold key" + ground),
        (f"{at + 1} ", "faint" + ground),
        (cut(label_of(knob.name), NAME).ljust(NAME), name_style),
        (running.rjust(VALUE), ("bold text" if chosen else "text" if usable else "faint") + ground),
        (" ", "text" + ground),
        *((text, style + ground) for text, style in _next_runs(view, knob, chosen, width - NAME - VALUE - 4)),
    ]
    return fit(runs, width, "text" + ground)


def _next_runs(view: View, knob: KnobRow, chosen: bool, room: int) -> list[Run]:
    """The right half of a knob's row: what it becomes, what it can do, or why not."""
    following, glyphs = view.next_of(knob), view.glyphs
    if following is not None and following != knob.in_force:
        word = "asked" if knob.name in view.wanted else "applying" if knob.state == "applying" else "queued"
        return [(f"{glyphs.arrow}{value_words(following)}".ljust(5), "bold worse"), (f" {word}", "worse")]
    if not knob.can:
        return [(cut(clean(knob.reason), room) if knob.reason else "", "faint")]
    if knob.state == "settling":
        return [("settling", "dim")]
    if knob.state == "rolled_back":
        return [("rolled back", "alarm")]
    if chosen and not view.readonly:
        return [
            (f"{glyphs.left} {glyphs.right}", "bold key"),
            ("" if knob.can_now else " at the next epoch", "dim"),
        ]
    differs = knob.script is not None and knob.in_force is not None and knob.in_force != knob.script
    return [(f"script {value_words(knob.script)}" if differs else "", "faint")]


def hint_row(view: View, width: int) -> Row:
    """The line below the knobs: what went wrong, else the queue and when it lands, else the chosen knob in words."""
    trouble = trouble_words(view)
    if trouble:
        return fit([("   ", "text"), (cut(trouble, max(0, width - 3)), "alarm")], width)
    waiting = queued(view.known)
    asked = {name for entry in waiting for name in entry.asked} | set(view.wanted)
    if asked and view.known.phase == "running":
        return fit([("   ", "text"), *_queue_runs(view, len(asked))], width)
    if view.known.phase in ("ended", "lost"):
        return fit([("   ", "text"), (cut(ended_words(view.known), max(0, width - 3)), "dim")], width)
    knobs = view.knobs
    if not 0 <= view.cursor < len(knobs):
        return fit((), width)
    knob = knobs[view.cursor]
    words = clean(knob.reason) if knob.reason else clean(knob.note) if knob.note else BY_NAME[knob.name].help
    return fit([("   ", "text"), (cut(words, max(0, width - 3)), "dim")], width)


def trouble_words(view: View) -> str:
    """What is wrong with our own sight of the run, in one sentence; empty when nothing is."""
    if view.link_lost_s is not None:
        return "the engine does not answer; the training is not affected; trying again every second"
    if probe_lost_for(view) is not None:
        return "the training is no longer heard: what is shown in grey is old"
    return ""


def ended_words(state: State) -> str:
    """What is left when the training is over."""
    if state.phase == "lost":
        return "the training is gone and left no exit status"
    if state.survivors:
        return f"still running, left alone: {clean(', '.join(state.survivors))}"
    save = "s saves its setup, " if tuned_setup(state) else ""
    return f"the training ended with status {state.exit_status}; {save}q leaves"


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
    if any(entry.now and entry.state == "queued" for entry in state.ledger):
        return "lands with the next batch"
    loaders = training_loaders(state)
    if (
        loaders
        and not any(loader.boundaries for loader in loaders)
        and any(loader.steps_per_epoch is None for loader in loaders)
    ):
        return "no epoch's end in sight"
    in_s = boundary_in_s(state)
    return "at the next epoch" if in_s is None else f"at the next epoch in {clock(in_s)}"
