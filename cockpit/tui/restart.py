"""The view of hot restarts on the whole screen: the environment, what a restart costs, how far one has come. Pure.

Called by the frame when ``r`` has opened it; ``restarting`` holds what a person has chosen in it. No value is shown
that nobody gave, but for those that can be no secret: the engine decides that.
"""

from __future__ import annotations

from cockpit.history import crash, handoffs
from cockpit.history.restart import STAGES, Stage, hands_over, newest, under_way
from cockpit.history.state import State
from cockpit.model.environment import BY_NAME, OTHER_HASHES, goes_along
from cockpit.model.knobs import ENV, UNSET

from .clean import clean
from .dialogs import WIDE, box, keys
from .draft import MORE, Draft, cursor_of, names_of
from .footer import wrapped
from .format import NOTHING
from .rows import BLANK, Row, Run, cells, cut, first_that_fits, fit, row
from .view import View

NAME_LEAST, NAME_MOST = 24, 34
INDENT = 10
LOW = 16
"""Rows below which the list needs the place of what a variable is for."""


def restart_rows(view: View, height: int, width: int) -> list[Row]:
    """``height`` rows of the view."""
    draft, state = view.restart or Draft(), view.known
    about = _about(draft, state, width) if height >= LOW else []
    below = [*about, *_cost(view, draft, width), *_progress(view, width)]
    below = below[: max(0, height - 4)]
    room = max(1, height - 2 - len(below))
    names, at = names_of(draft, state), cursor_of(draft, state)
    first = max(0, min(at - room + 2, len(names) - room))
    shown = list(enumerate(names))[first : first + room]
    size = min(NAME_MOST, max(NAME_LEAST, *(cells(clean(name)) + 2 for name in names)))
    half = max(4, (width - size - 6) // 2)
    place = f"{first + 1}-{first + len(shown)} of {len(names)}" if len(shown) < len(names) else ""
    head = row(
        (" RESTART".ljust(size + 3), "bold text"),
        ("running".ljust(half), "dim"),
        ("next".ljust(6), "dim"),
        (f"  {place}", "faint"),
    )
    rows = [_variable(view, draft, name, number == at, size, half, width) for number, name in shown]
    found = [fit(head, width), *rows, BLANK, *below]
    return [*found, *([BLANK] * (height - len(found)))][: max(0, height)]


def _variable(view: View, draft: Draft, name: str, chosen: bool, size: int, half: int, width: int) -> Row:
    ground = " on-cursor" if chosen else ""
    mark: Run = (view.glyphs.cursor if chosen else " ", "bold key" + ground)
    style = ("bold text" if chosen else "text") + ground
    if name == MORE:
        return fit([mark, (f" {MORE} …", "dim" + ground)], width, "text" + ground)
    asked = _asked(view.known, name)
    # not known is no word, not set is a dash
    value = draft.values.get(name, "")
    running = NOTHING if value is None else shown(value) if name in draft.values else ""
    following: list[Run] = []
    if name in draft.env:
        following = [(f"{view.glyphs.arrow}{_words(draft.env[name])}", "bold worse" + ground)]
    elif asked is not None:
        following = [(f"{view.glyphs.arrow}{shown(asked)}", "bold worse" + ground), (" asked", "worse" + ground)]
    runs: list[Run] = [
        mark,
        (f" {cut(clean(name), size)}".ljust(size + 2), style),
        (cut(running, half - 1).ljust(half), ("faint" if value is None else "text") + ground),
        *following,
    ]
    return fit(runs, width, "text" + ground)


def _asked(state: State, name: str) -> str | None:
    """What a restart under way will set it to."""
    stage = under_way(state)
    value = stage.entry.asked.get(ENV + name) if stage is not None else None
    return None if value is None else str(value)


def shown(value: str) -> str:
    """A value on one line, whole: a line break in it is written out."""
    return clean(value.replace("\n", "\\n").replace("\r", "\\r")) or "(empty)"


def _words(value: str | None) -> str:
    return UNSET if value is None else shown(value)


def _labelled(label: str, words: str, width: int, style: str = "text") -> list[Row]:
    return [
        row(((f" {label}" if at == 0 else "").ljust(INDENT), "dim"), (line, style))
        for at, line in enumerate(wrapped(words, max(8, width - INDENT - 1)))
    ]


def _about(draft: Draft, state: State, width: int) -> list[Row]:
    """What the chosen variable does, and values that people give it."""
    name = names_of(draft, state)[cursor_of(draft, state)]
    known = BY_NAME.get(name)
    early = draft.answer.get("set_early") if draft.answer is not None else None
    if isinstance(early, list) and name in early:
        return _labelled("about", f"the script sets {name} itself, before it imports torch: change it there", width)
    if known is None:
        return _labelled("about", "any variable: type NAME=VALUE, or NAME alone to take it away", width, "dim")
    return _labelled("about", f"{known.help}; as {', '.join(known.like)}", width, "dim")


def _cost(view: View, draft: Draft, width: int) -> list[Row]:
    """When the training would hand over and what that loses; or why it cannot."""
    if under_way(view.known) is not None:
        return []
    words, style = cost_words(view, draft)
    crashed = _labelled("crashed", clean(_crashed(view)), width, "alarm") if view.known.crash is not None else []
    return [BLANK, *crashed, *_labelled("cost", words, width, style), *_written(view, width)]


def _written(view: View, width: int) -> list[Row]:
    """What hand-offs have taken so far, of the run's time."""
    costly = handoffs.warning(view.known, view.now_s)
    found = handoffs.words(view.known, view.now_s)
    words = costly or (f"hand-offs: {found}" if found else None)
    return _labelled("so far", words, width, "worse" if costly else "dim") if words else []


def _crashed(view: View) -> str:
    """What ended it, and when it is tried again or why it is not."""
    state, news = view.known, view.known.crash
    if news is None:
        return ""
    told = [crash.cause_words(news)]
    if crash.is_waiting(state):
        told.append(f"{crash.try_words(news, view.now_s)} (u drops it)")
    elif news.reason:
        told.append(news.reason)
    return "; ".join(told)


def cost_words(view: View, draft: Draft) -> tuple[str, str]:
    """What a restart costs in a sentence, and its style; refusals in the engine's own words."""
    if view.link_lost_s is not None or view.state is None:
        return "the engine does not answer: nobody can be asked", "alarm"
    if draft.answer is None:
        return "asking the engine what it would cost", "dim"
    reason = draft.answer.get("reason")
    if reason:
        return clean(str(reason)), "worse"
    if draft.answer.get("goes_on"):
        return clean(str(draft.answer["goes_on"])), "worse"
    names = [clean(str(name)) for name in draft.answer.get("names") or ()]
    with_it = f": {goes_along(names)}" if names else ""
    when = hands_over(view.known)
    sets = f". {OTHER_HASHES[0].upper()}{OTHER_HASHES[1:]}" if draft.answer.get("other_hashes") is True else ""
    again = '. Its first lines run again: what they open with "w" is emptied'
    doubt = f". {clean(str(draft.answer['doubt']))}" if draft.answer.get("doubt") else ""
    lands = f"The training hands over {when}; until then it can be called off"
    return f"no step is lost{with_it}. {lands}{again}{sets}{doubt}", "worse" if doubt else "text"


def _progress(view: View, width: int) -> list[Row]:
    """The newest restart: its stages with the present one standing out, and a sentence."""
    stage = newest(view.known)
    if stage is None:
        return []
    known = stage.word in STAGES or stage.pending
    style = "worse" if stage.pending else "dim" if known else "alarm"
    wide, arrow = f" {view.glyphs.arrow} ", view.glyphs.arrow
    label: Run = (" now".ljust(INDENT), "dim")
    alone: list[Run] = [label, (_place(stage), "bold better" if known else "bold alarm")]
    choices = [[label, *_stages(stage, between)] for between in (wide, arrow) if stage.word in STAGES]
    stages = fit(first_that_fits(width, *choices, alone), width)
    return [BLANK, stages, *_labelled("", stage_words(stage), width, style)]


def stage_words(stage: Stage) -> str:
    """The sentence of a stage, and what the new process has said of itself."""
    note = f" ({clean(stage.entry.note)})" if stage.entry.note and stage.word == "preparing" else ""
    return clean(stage.words) + note


def _place(stage: Stage) -> str:
    at = STAGES.index(stage.word) + 1 if stage.word in STAGES else 0
    return f"{stage.word.upper()} ({at} of {len(STAGES)})" if at else stage.word


def _stages(stage: Stage, between: str) -> list[Run]:
    at = STAGES.index(stage.word)
    runs: list[Run] = []
    for number, word in enumerate(STAGES):
        style = "bold better" if number == at else "dim" if number < at else "faint"
        runs += [(between if number else "", "faint"), (word.upper() if number == at else word, style)]
    return runs


def confirm_rows(view: View, draft: Draft, width: int, height: int) -> list[Row]:
    """Before anything is asked: what would change, when, and what it costs."""
    size = min(WIDE, width)
    body: list[list[Run]] = []
    for name, value in draft.env.items():
        old = draft.values.get(name, "")
        began = NOTHING if old is None else shown(old) if name in draft.values else ""
        words = f"{began} {view.glyphs.arrow} {_words(value)}"
        body += [[(piece, "bold text")] for piece in wrapped(f"{clean(name)}  {words}", max(8, size - 4))]
    if not draft.env:
        body.append([("the same environment, in a new process", "bold text")])
    words, style = cost_words(view, draft)
    body += [[], *([(piece, style)] for piece in wrapped(words, max(8, size - 4)))]
    foot = keys(("enter", "restart"), ("esc", "not now"))
    return box("restart in a new process", body[: max(1, height - 5)], foot, size, view.glyphs)[:height]
