"""``cockpit help``: the verbs, or one verb with its options. Printed from the tables that parse them."""

from __future__ import annotations

import importlib

from cockpit.model.knobs import KNOBS, takes

from .verbs import VERBS, Verb, verb_named
from .words import Option, Words

OPTIONS: tuple[Option, ...] = ()


def call(verb: Verb, words: Words) -> int:
    """Print the page; 0."""
    del verb
    print("\n".join(page(verb_named(words.rest[0])) if words.rest else front()))
    return 0


def front() -> list[str]:
    """The page of all verbs and knobs."""
    lines = [
        "cockpit: turn the knobs of a running, unmodified PyTorch training",
        "",
        "  cockpit run train.py",
        "",
    ]
    lines += [f"  {verb.name:<9} {verb.help}" for verb in VERBS]
    lines += ["", "knobs (KNOB=VALUE; `script` = as the script has it):"]
    lines += [f"  {knob.name:<19} {takes(knob):<26} {knob.help}" for knob in KNOBS]
    lines += ["", "RUN is a name or the beginning of one; left out: the only running one, else the newest."]
    return [*lines, "`cockpit help VERB` lists the options of one verb."]


def page(verb: Verb) -> list[str]:
    """One verb and its options."""
    options = importlib.import_module(f"cockpit.cli.{verb.module}").OPTIONS
    lines = [f"cockpit {verb.name} {verb.words}".rstrip(), f"  {verb.help}", ""]
    for option in options:
        names = ", ".join(name for name in (option.short, option.name) if name)
        lines.append(f"  {' '.join((names, *option.takes)):<32} {option.help}")
    return lines
