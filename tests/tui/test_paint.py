"""What goes to the terminal, and the whole picture as SVG: the same looks as Textual's own writing, in fewer bytes."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.color import ColorSystem
from rich.console import Console
from textual.strip import Strip
from tui import scenes

from cockpit.model.knobs import BY_NAME
from cockpit.tui.dialogs import help_rows, leave_rows
from cockpit.tui.frame import frame
from cockpit.tui.glyphs import BRAILLE
from cockpit.tui.paint import strip_of, style_of
from cockpit.tui.palette import THEMES
from cockpit.tui.view import View

HERE = Path(__file__).resolve().parent
SGR = re.compile(r"\x1b\[([0-9;]*)m")


def looks(written: str) -> list[tuple[str, tuple[str, ...]]]:
    """Each character with what a terminal would show it as: bold, dim, reverse, foreground, background."""
    now = {"bold": "", "dim": "", "reverse": "", "fg": "", "bg": ""}
    found = []
    parts = SGR.split(written)
    for at, part in enumerate(parts):
        if at % 2 == 0:
            found += [(char, tuple(now.values())) for char in part]
            continue
        codes = [int(code or 0) for code in part.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                now = dict.fromkeys(now, "")
            elif code in (1, 2, 7):
                now[{1: "bold", 2: "dim", 7: "reverse"}[code]] = "on"
            elif code in (38, 48):
                size = 4 if codes[0] == 2 else 2
                now["fg" if code == 38 else "bg"] = ";".join(str(each) for each in codes[:size])
                del codes[:size]
            else:
                now["fg" if code % 100 // 10 in (3, 9) and code < 100 else "bg"] = str(code)
    return found


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
@pytest.mark.parametrize("theme", list(THEMES))
@pytest.mark.parametrize("mono", [False, True])
def test_the_lean_writing_looks_like_textuals_own(system: str, theme: str, mono: bool) -> None:
    console = Console(color_system=system, force_terminal=True)  # type: ignore[arg-type]
    assert console._color_system in ColorSystem
    style_of.cache_clear()  # rich keeps the sequence of the first colour system on the style
    ours = theirs = 0
    for row in frame(View(*scenes.steady(), mono=mono), 120, 40):
        strip = strip_of(row, 120, theme, mono)
        lean, plain = strip.render(console), Strip(list(strip), 120).render(console)
        assert looks(lean) == looks(plain)
        ours, theirs = ours + len(lean.encode()), theirs + len(plain.encode())
    assert ours < theirs * (0.95 if not mono else 1.0)


@pytest.mark.parametrize(
    ("theme", "system"), [("dark", "truecolor"), ("dark", "256"), ("light", "256"), ("sixteen", "standard")]
)
def test_no_word_is_written_in_the_colour_of_its_ground(theme: str, system: str) -> None:
    console = Console(color_system=system, force_terminal=True)  # type: ignore[arg-type]
    state, now_s = scenes.steady()
    for chosen in BY_NAME:
        for view in (View(state, now_s, chosen), View(state, now_s, chosen, link_lost_s=now_s, notice="words")):
            for row in [*frame(view, 120, 40), *leave_rows(state, 80, BRAILLE), *help_rows(80, 30, 0, BRAILLE)]:
                for text, style, _ in strip_of(row, 120, theme, False):
                    assert style is not None
                    color, ground = (
                        each.downgrade(console._color_system).number or each.triplet  # type: ignore[union-attr, arg-type]
                        for each in (style.color, style.bgcolor)
                    )
                    assert text.isspace() or color != ground, (text, style)


def maker() -> ModuleType:
    """screenshots/make.py, which is a script and in no package."""
    path = HERE.parents[1] / "screenshots" / "make.py"
    spec = importlib.util.spec_from_file_location("make_screenshots", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cockpit-80x24", "mono", "leave"])
def test_the_picture_is_the_one_that_was_accepted(name: str, tmp_path: Path) -> None:
    make = maker()
    drawn = make.svg_of({**make.SHOTS, **make.MORE}[name])
    kept = HERE / "snapshots" / f"{name}.svg"
    if os.environ.get("COCKPIT_ACCEPT"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(drawn, encoding="utf-8")
    if drawn != kept.read_text(encoding="utf-8"):
        other = tmp_path / kept.name
        other.write_text(drawn, encoding="utf-8")
        raise AssertionError(f"the picture changed: look at {other} and {kept}, then accept it with COCKPIT_ACCEPT=1")
