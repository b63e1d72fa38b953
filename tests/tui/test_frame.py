"""The whole picture as text: every size is filled exactly, any state is drawn, and what must be there is there."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tui import scenes
from tui.any_state import VALUES, Grower

from cockpit.history.fold import fold
from cockpit.history.state import State
from cockpit.model.events import OutputSeen, ProbeLost, TrainingEnded
from cockpit.model.knobs import BY_NAME
from cockpit.model.missing import FAILED, ProbeMissed
from cockpit.tui.draft import MORE, Draft
from cockpit.tui.frame import frame
from cockpit.tui.glyphs import ASCII, SETS
from cockpit.tui.paint import strip_of
from cockpit.tui.reading import Reading
from cockpit.tui.rows import text_of, width_of
from cockpit.tui.view import SPANS_S, View

SIZES = [
    (80, 24),
    (120, 40),
    (200, 60),
    (60, 16),
    (59, 24),
    (80, 15),
    (1, 1),
    (2, 3),
    (61, 17),
    (150, 30),
    (300, 90),
]


def any_view(seed: int) -> View:
    grow = Grower(seed)
    pick = grow.random
    state = grow.state() if pick.random() < 0.95 else None
    now_s = pick.choice([0.0, 1_800_000_100.0, grow.number(), float("nan")])
    wanted = {name: pick.choice(VALUES) for name in pick.sample(list(BY_NAME), pick.randint(0, 2))}
    return View(
        state, now_s, pick.choice(["", "unheard_of", *BY_NAME]), wanted, pick.choice([None, None, grow.number()]),
        pick.choice(list(SETS.values())), pick.random() < 0.3, pick.random() < 0.2, pick.choice(SPANS_S),
        (grow.text(), grow.text()), grow.text() if pick.random() < 0.3 else "",
        pick.randint(0, 9), pick.random() < 0.5, any_reading(grow), pick.choice([None, None, 0, 7, 10**6]),
        any_draft(grow) if pick.random() < 0.3 else None,
    )  # fmt: skip


def any_draft(grow: Grower) -> Draft:
    """Anything chosen, and anything said by an engine of another version."""
    pick, names = grow.random, ["OMP_NUM_THREADS", "MINE", grow.text()]
    env = {name: pick.choice([None, "", grow.text()]) for name in pick.sample(names, pick.randint(0, 3))}
    answers = [None, {}, {"reason": grow.text()}, {"values": {"MINE": grow.text(), "LD_PRELOAD": None}, "names": ["x"]}]
    odd = {"values": None, "set_early": ["MINE"], "names": None, "goes_on": grow.text()}
    draft = Draft(env, pick.choice(["", "MINE", MORE, grow.text()]))
    answer = pick.choice([*answers, odd])
    return draft if answer is None else draft.answered(answer)


def any_reading(grow: Grower) -> Reading:
    """Closed, or open at any place and looking for anything."""
    pick = grow.random
    hits = tuple(sorted(pick.sample(range(12), pick.randint(0, 3))))
    return Reading(
        pick.random() < 0.3, pick.choice([None, -5, 0, 3, 10**9]), pick.choice([0, 0, 20, 10**6]),
        pick.choice(["", "a", grow.text()]), hits, pick.choice([None, *hits]),
    )  # fmt: skip


ANY_SIZE = st.one_of(st.sampled_from(SIZES), st.tuples(st.integers(1, 210), st.integers(1, 70)))
ANY_SEED = st.integers(0, 2**32)


def check_fills(seed: int, size: tuple[int, int]) -> None:
    view, (width, height) = any_view(seed), size
    rows = frame(view, width, height)
    assert len(rows) == height
    assert [width_of(row) for row in rows] == [width] * height
    text = "".join(text for row in rows for text, _ in row)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text), "a control character got through"
    text.encode("utf-8")  # a lone surrogate would end the screen
    if view.glyphs is ASCII:
        assert text.isascii()
    for row in rows:
        strip_of(row, width, "dark", view.mono)  # every style has a meaning


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=ANY_SEED, size=ANY_SIZE)
def test_any_state_at_any_size_fills_exactly_that_size(seed: int, size: tuple[int, int]) -> None:
    check_fills(seed, size)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=ANY_SEED, size=ANY_SIZE)
def test_any_state_at_any_size_long(seed: int, size: tuple[int, int]) -> None:
    check_fills(seed, size)


def drawn(state: State, now_s: float, width: int = 80, height: int = 24, **more: object) -> list[str]:
    return text_of(frame(View(state, now_s, **more), width, height)).split("\n")  # type: ignore[arg-type]


def test_the_picture_of_a_tuned_run() -> None:
    rows = drawn(*scenes.steady())
    assert rows[0].startswith(" train.py   epoch 6  step 534/782  ━━━━━━━━━━  takes 0:12, was 0:40")
    assert rows[0].endswith("● STEADY")
    assert rows[1] == "   1 000 samples/s  baseline 310    since start ×3.23  data wait   4% of a step"
    assert rows[2].startswith(" last num_workers 2→4  ▲ +46.8% ±0.5 [+46.2, +47.3] faster  685→1 005")
    assert "◆num_workers 0→2 " in rows[6] and "◆num_workers 2→4 " in rows[6]
    assert rows[3].startswith("MODEL  89%│") and rows[9].startswith("CPU    77%│")
    assert rows[10].endswith("2.9 of 4 busy: main 0.9 workers 1.9 others 0.0 rest 0.1")
    assert rows[11] == "loader     train.py:41 · 4 workers · 8/8 ready · start 61 ms       no GPU in use"
    assert "data wait 38%" in rows[12] and rows[12].endswith("23.4 ms")
    assert "backward 52%" in rows[13] and rows[13].endswith("16.0 ms")
    assert rows[16].startswith("▸1 num_workers       4 ‹ ›")
    assert rows[18].startswith(" 3 persistent      off →on   queued")
    assert rows[21] == "   1 queued, at the next epoch in 0:03  a now u drop"
    assert rows[23] == " ←→ change  a apply now  u undo  p pause  b baseline  s save  ? help  q leave"


def test_rows_1_to_3_stand_in_the_same_place_at_every_size() -> None:
    state, now_s = scenes.steady()
    for width, height in [(80, 24), (80, 17), (120, 40), (200, 60), (104, 30)]:
        rows = drawn(state, now_s, width, height)
        assert rows[0].startswith(" train.py") and rows[0].endswith("● STEADY"), (width, height)
        assert rows[1].startswith("   1 000 samples/s  baseline 310    since start ×3.23  data wait   4%")
        assert "num_workers 2→4  ▲ +46.8% ±0.5 [+46.2, +47.3] faster" in rows[2]


def test_below_60_by_16_there_is_one_line() -> None:
    rows = drawn(*scenes.steady(), 59, 30)
    assert rows[0].startswith(" ● STEADY") and "1 000 samples/s ×3.23" in rows[0]
    assert not any(rows[1:])


def test_only_one_line_says_gpu() -> None:
    for size in [(80, 24), (120, 40), (200, 60)]:
        rows = drawn(*scenes.steady(), *size)
        assert [row for row in rows if "GPU" in row or "gpu" in row.lower()] == [
            row for row in rows if "no GPU in use" in row or "uses no GPU" in row
        ]
        assert sum("GPU" in row for row in rows) == 1


def test_before_anything_is_known_there_are_dashes_and_no_zeros() -> None:
    rows = drawn(State(), 1000.0)
    assert "… STARTING" in rows[0] and "epoch –" in rows[0]
    assert rows[1] == "       – samples/s  baseline –      since start –      data wait    – of a step"
    assert "0" not in rows[1] + rows[2] + rows[3] + rows[9]


def test_a_probe_that_failed_is_not_waited_for() -> None:
    waits = State(run="it", phase="running", started_s=1000.0, output=OutputSeen(1001.0, "epoch 3", 10))
    slow = fold(waits, ProbeMissed(1002.0, "torch is being imported in process 7"))
    assert "… STARTING" in drawn(slow, 1060.0)[0]
    assert drawn(fold(waits, ProbeMissed(1002.0, f"{FAILED}: x")), 1060.0)[0].endswith("⌁ LOST probe 1:00")


def test_a_lost_engine_dims_every_figure_and_says_since_when() -> None:
    state, now_s = scenes.steady()
    rows = frame(View(state, now_s, link_lost_s=now_s - 12.0), 80, 24)
    text = text_of(rows).split("\n")
    assert text[0].endswith("⌁ LOST engine 0:12")
    assert "the engine does not answer; the training is not affected" in text[21]
    figures = [style for row in rows[1:14] for _, style in row]
    assert {style.split()[0] for style in figures} == {"faint", "dim"}


def test_a_lost_probe_is_said_after_a_moment_and_not_at_once() -> None:
    state, now_s = scenes.steady()
    state = fold(state, ProbeLost(now_s, 4711))
    assert "LOST" not in drawn(state, now_s + 0.5)[0]
    assert drawn(state, now_s + 5.0)[0].endswith("⌁ LOST probe 0:05")


def test_without_a_probe_the_likely_reasons_are_named() -> None:
    events = list(scenes.Script().opening())[:3]
    state = scenes.fold_all(events)
    assert "PYTHONPATH" not in "\n".join(drawn(state, scenes.BEGAN_S + 5))
    text = "\n".join(drawn(state, scenes.BEGAN_S + 16))
    for reason in ("has not imported torch yet", "-I, -E or -S", "PYTHONPATH=.:$PYTHONPATH", "container"):
        assert reason in text


def test_when_the_run_has_ended_the_screen_says_how() -> None:
    state, now_s = scenes.steady()
    state = fold(state, TrainingEnded(now_s, 0, ("4720 tensorboard",)))
    rows = drawn(state, now_s + 60)
    assert rows[0].endswith("■ ENDED exit 0")
    assert "still running, left alone: 4720 tensorboard" in rows[21]
    assert "apply" not in rows[23] and "q leave" in rows[23]
    assert "MODEL    –│" in rows[3], "after the end there is no figure of now"


def test_hostile_output_is_data() -> None:
    state, now_s = scenes.steady()
    bad = ("[/loss] [bold]x[/bold] \x1b[2J\x1b[H\x1b]0;title\x07done", "50%\r100% \x1b[31mred\x1b[0m")
    rows = drawn(state, now_s, 120, 40, lines=bad)
    assert "› [/loss] [bold]x[/bold] done" in rows
    assert "› 100% red" in rows


def test_a_notice_lies_over_the_rows_above_the_footer_and_moves_nothing() -> None:
    state, now_s = scenes.steady()
    before, after = drawn(state, now_s), drawn(state, now_s, notice="pin_memory: no accelerator " * 4)
    assert after[:21] == before[:21] and after[23] == before[23]
    assert after[21].startswith(" ▸ pin_memory: no accelerator") and "accelerator" in after[22]


def test_readonly_lists_no_key_that_acts() -> None:
    footer = drawn(*scenes.steady(), readonly=True)[23]
    assert "apply" not in footer and "change" not in footer and "read only" in footer and "q leave" in footer
