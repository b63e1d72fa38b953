"""Rows: cutting and joining never change what is seen, and a width is a width whatever the characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.tui.clean import clean
from cockpit.tui.glyphs import printable, spelled
from cockpit.tui.rows import beside, cells, clip, cut, faded, first_that_fits, fit, row, spread, text_of, width_of

TEXT = st.text(st.one_of(st.characters(), st.sampled_from("→▲⣿日本é–…")), max_size=20)
STYLES = st.sampled_from(["text", "dim", "bold better", "text on-bar", "dim on-bar", "bold ink on-wait"])
RUNS = st.lists(st.tuples(TEXT, STYLES), max_size=8)
WIDTH = st.integers(0, 60)


@given(RUNS, WIDTH)
def test_fit_is_exact_and_clip_never_longer(runs: list[tuple[str, str]], width: int) -> None:
    assert width_of(fit(runs, width)) == width
    assert width_of(clip(runs, width)) <= width
    assert width_of(spread(runs, runs, width)) == width


@given(RUNS)
def test_joining_runs_keeps_the_text_and_every_visible_style(runs: list[tuple[str, str]]) -> None:
    joined = row(*runs)
    assert "".join(text for text, _ in joined) == "".join(text for text, _ in runs)
    assert len(joined) <= len([run for run in runs if run[0]])

    def visible(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(char, style) for text, style in found for char in text if not char.isspace()]

    def grounds(found: list[tuple[str, str]]) -> list[str]:
        return [style.partition("on-")[2] for text, style in found for _ in text]

    assert visible(list(joined)) == visible(runs)
    assert grounds(list(joined)) == grounds(runs)


@given(TEXT, WIDTH)
def test_cut_fits_and_marks_what_is_gone(text: str, width: int) -> None:
    short = cut(text, width)
    assert cells(short) <= width
    assert short == text or width == 0 or short.endswith("…")


@given(RUNS)
def test_printable_shows_everything_and_keeps_the_width(runs: list[tuple[str, str]]) -> None:
    for plain in (False, True):
        shown = printable(row(*runs), plain)
        text = "".join(part for part, _ in shown)
        assert text.isprintable() and (text.isascii() or not plain)
        assert width_of(shown) == width_of(runs)


@given(st.text(max_size=60))
def test_child_text_becomes_one_harmless_line(text: str) -> None:
    line = clean(text)
    assert "\x1b" not in line and "\n" not in line and "\r" not in line
    line.encode("utf-8")


def test_child_text_by_example() -> None:
    assert clean("50%|████|\r 100%|████| done\n") == " 100%|████| done"
    assert clean("\x1b[2J\x1b[H\x1b[31mred\x1b[0m") == "red"
    assert clean("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\") == "link"
    assert clean("[/loss] [bold]x") == "[/loss] [bold]x"
    assert clean("a\tb\x07c\x9b1mz") == "a   b\ufffdcz"
    assert clean("x" * 5_000_000) == "x" * 4000
    assert clean("\u202eevil") == "\ufffdevil"


def test_blocks_beside_each_other() -> None:
    left, right = [row(("ab", "text"))], [row(("c", "text")), row(("d", "dim"))]
    assert text_of(beside(left, right, 4)) == "ab  c\n    d"


def test_the_richest_choice_that_fits_is_taken() -> None:
    long, short = [("long words", "text")], [("short", "text")]
    assert text_of([first_that_fits(12, long, short)]) == "long words"
    assert text_of([first_that_fits(6, long, short)]) == "short"
    assert text_of([first_that_fits(3, long, short)]) == "sho"


def test_faded_rows_keep_their_words_and_lose_their_colours() -> None:
    rows = [row(("4 ms", "bold better"), (" wait ", "bold ink on-wait"), (" x", "text on-bar"))]
    after = faded(rows)
    assert text_of(after) == text_of(rows)
    assert [style for _, style in after[0]] == ["dim", "faint on-old", "dim on-bar"]


def test_spelling_keeps_the_width() -> None:
    assert spelled("▲ +37.7% ±1.4  1 396→1 923 日本") == "^ +37.7% ~1.4  1 396>1 923 ????"
