"""The parts of the picture by themselves: bars, cores, knobs, trials, and the words of the third row."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tui import scenes

from cockpit.history.fold import fold
from cockpit.history.state import Phases, State
from cockpit.model.events import ChangeAsked, ChangeMoved, LoadersSeen, MachineSeen, Sampled
from cockpit.tui.bars import bar, bar_row, legend
from cockpit.tui.dialogs import saved_rows
from cockpit.tui.footer import footer_row, wrapped
from cockpit.tui.glyphs import BRAILLE
from cockpit.tui.head import change_row, speed_row, title_row
from cockpit.tui.machine import busy_cores, columns_of, cores_row
from cockpit.tui.rows import cells, text_of, width_of
from cockpit.tui.settings import hint_rows, landing_words, settings_rows
from cockpit.tui.trials import trials_rows
from cockpit.tui.view import View
from cockpit.tui.wishes import flipped, moved, plan, why_not_knob, why_not_now

PHASES = Phases(45.8, 12.8, 0.0, 10.1, 19.2, 1.9, 1.8)
MS = st.one_of(st.none(), st.floats(0, 1e4))


def test_a_bar_is_as_long_as_its_step_and_waiting_comes_first() -> None:
    runs = bar(PHASES, 60, 45.8, False)
    assert sum(cells(text) for text, _ in runs) == 60
    assert runs[0][0].strip() == "data wait 28%" and runs[0][1] == "bold ink on-wait"
    half = bar(PHASES, 60, 91.6, False)
    assert sum(cells(text) for text, _ in half) == 30


def test_without_colours_every_phase_has_its_letter() -> None:
    text = "".join(text for text, _ in bar(PHASES, 60, 45.8, True))
    assert text.index("data wait") < text.index("forward") < text.index("backward") < text.index("O") < text.index("-")
    short = "".join(text for text, _ in bar(PHASES, 30, 45.8, True))
    assert "D 28%" in short and "B" in short and short.endswith("-")


@given(st.builds(Phases, st.floats(0.001, 1e4), MS, st.floats(0, 1e4), MS, st.floats(0, 1e4), st.floats(0, 1e4), MS),
       st.integers(0, 200), st.floats(0.001, 1e4), st.booleans())  # fmt: skip
def test_no_bar_is_wider_than_its_room(phases: Phases, width: int, longest_ms: float, mono: bool) -> None:
    assert sum(cells(text) for text, _ in bar(phases, width, longest_ms, mono)) <= width
    assert width_of(bar_row("now", phases, width, 11, longest_ms, mono)) == width


def test_what_was_not_measured_is_left_out() -> None:
    blind = Phases(10.0, None, 0.0, None, 5.0, 1.0, None)
    text = "".join(text for text, _ in bar(blind, 60, 10.0, True))
    assert "D" not in text and "F" not in text and "B" in text


def test_the_legend_names_the_loaders_start_only_when_it_matters() -> None:
    some = {"now": replace(PHASES, start_ms=4.0)}
    assert "loader start" not in text_of([legend({"now": PHASES}, 90, 11, BRAILLE, False)])
    assert "loader start" in text_of([legend(some, 90, 11, BRAILLE, False)])


def test_cores_are_everybodys_and_the_split_adds_up() -> None:
    sample = Sampled(0.0, 0.5, cpu_main=0.9, cpu_workers=0.8, cpu_others=0.1, cores_busy=(1.0, 1.0))
    busy, parts, word = busy_cores(sample, 2.0)
    assert (round(busy or 0, 3), word) == (2.0, "busy")
    assert [name for name, _ in parts] == ["main", "workers", "others", "rest"]
    assert round(sum(part or 0.0 for _, part in parts), 6) == 2.0, "nobody's work is missing or counted twice"
    state = State(latest=sample, machine=MachineSeen(0.0, 2.0, "affinity"))
    row = text_of([cores_row(View(state, 0.0), 80, 11)])
    assert row.endswith("2.0 of 2 busy: main 0.9 workers 0.8 others 0.1 rest 0.2")
    quota = busy_cores(sample, 0.5)
    assert quota[2] == "used" and round(quota[0] or 0, 3) == 1.8, "under a quota only our own use counts"
    nothing = busy_cores(Sampled(0.0, 0.5), 2.0)
    assert nothing[0] is None and {part for _, part in nothing[1]} == {None}, "not measured is not zero"


def test_many_cores_are_squeezed_and_none_is_lost() -> None:
    assert columns_of((1.0, 0.0, 0.5), 20, BRAILLE) == "██    ▄▄"
    assert len(columns_of((1.0,) * 16, 20, BRAILLE)) == 16
    assert columns_of((1.0,) * 256, 20, BRAILLE) == "█" * 20
    assert columns_of((), 20, BRAILLE) == ""


def test_a_knob_that_cannot_be_had_says_why() -> None:
    state, now_s = scenes.early()
    rows = text_of(settings_rows(View(state, now_s), 70, 10)).split("\n")
    cannot = {row.split()[1]: row for row in rows[-3:]}
    assert list(cannot) == ["prefetch", "pin_memory", "persistent"], "what cannot be changed stands last"
    assert "needs workers" in cannot["prefetch"] and "no accelerator is seen" in cannot["pin_memory"]
    assert scenes.PIN in text_of(hint_rows(View(state, now_s, chosen="pin_memory"), 90, 1))


def test_the_queue_says_when_it_lands() -> None:
    state, now_s = scenes.steady()
    assert landing_words(state).startswith("at the next epoch in 0:0")
    asked = fold(state, ChangeAsked(now_s, "n", {"num_workers": 6}, True))
    assert landing_words(asked) == "lands with the next batch"
    two = fold(state, ChangeAsked(now_s, "n", {"num_workers": 6, "in_order": False}))
    assert "3 queued" in text_of(hint_rows(View(two, now_s), 80, 1))
    assert "can't be told apart" in text_of(hint_rows(View(two, now_s), 80, 1))
    endless = replace(state, loaders=(replace(state.loaders[0], steps_per_epoch=None, boundaries=False),))
    assert landing_words(endless) == "no epoch's end in sight"


def told(state: State, now_s: float, width: int = 100) -> str:
    return text_of([change_row(View(state, now_s), width)])


def test_the_third_row_never_claims_more_than_is_known() -> None:
    state, now_s = scenes.steady()
    last = state.ledger[1]

    def with_last(**fields: object) -> State:
        return replace(state, ledger=(state.ledger[0], replace(last, **fields)))  # type: ignore[arg-type]

    assert told(*scenes.early()).startswith(" last change –")
    not_known = with_last(verdict="not_comparable", delta_pct=None, interval_pct=None, before_windows=3)
    assert "not comparable (3/6 windows before)" in told(not_known, now_s)
    settling = with_last(verdict="settling", state="settling", settled_steps=41, settle_steps=128, delta_pct=None)
    assert "settling 41/128" in told(settling, now_s) and "%" not in told(settling, now_s)
    noise = with_last(verdict="within_noise", delta_pct=2.0, interval_pct=(-6.0, 10.0))
    assert "≈ +2.0% ±8.0 [-6, +10] within noise" in told(noise, now_s)
    same = with_last(verdict="no_change", delta_pct=-0.04, interval_pct=(-1.1, 1.0))
    assert "≈ -0.0%" in told(same, now_s) and "no change" in told(same, now_s)
    worse = with_last(verdict="slower", delta_pct=-12.0, interval_pct=(-13.0, -11.0))
    assert "▼ -12.0% ±1.0 [-13.0, -11.0] slower" in told(worse, now_s)


def test_a_change_that_was_replaced_too_soon_does_not_blame_what_was_before_it() -> None:
    state, now_s = scenes.steady()
    last = replace(
        state.ledger[-2], verdict="not_comparable", delta_pct=None, interval_pct=None, before_windows=14,
        after_windows=0, reason="the next change came before it was measured",
    )  # fmt: skip
    replaced = replace(state, ledger=(state.ledger[0], last))
    assert "not comparable (the next change came before it was measured)" in told(replaced, now_s)
    rows = text_of(trials_rows(View(replaced, now_s), 70, 6))
    assert "– short" in rows and "14/6" not in rows + told(replaced, now_s)


def test_what_can_land_now_does_not_wait_for_what_cannot() -> None:
    state, now_s = scenes.steady()
    rows = tuple(
        replace(knob, can_now=False, reason="at the boundary") if knob.name == "num_workers" else knob
        for knob in state.loaders[0].knobs
    )
    state = fold(state, LoadersSeen(now_s, (replace(state.loaders[0], knobs=rows),)))
    assert "num_workers changes only at the next epoch (at the boundary)" in (
        why_not_now(state, {"num_workers": 2}) or ""
    )
    assert why_not_now(state, {"num_workers": 2, "in_order": False}) is None


def test_a_refused_or_rolled_back_change_says_why() -> None:
    state, now_s = scenes.steady()
    state = fold(state, ChangeMoved(now_s, "q1", "refused", reason="[/x] the sampler\x1b[2J cannot"))
    assert "persistent on  refused: [/x] the sampler cannot" in told(state, now_s)
    rows = text_of(trials_rows(View(state, now_s), 70, 6))
    assert "persistent on refused: [/x] the sampler cannot" in rows


def test_a_waiting_change_does_not_push_the_last_one_off() -> None:
    state, now_s = scenes.steady()
    assert state.ledger[-1].state == "queued" and "num_workers 2→4" in told(state, now_s)


def test_the_baseline_keeps_its_place_under_any_number_of_trials() -> None:
    state, now_s = scenes.steady()
    for at in range(30):
        state = fold(state, ChangeAsked(now_s, f"x{at}", {"in_order": at % 2 == 0}))
    rows = text_of(trials_rows(View(state, now_s), 42, 6)).split("\n")
    assert len(rows) == 6 and rows[-1].split() == ["0", "baseline", "310"]
    assert rows[1].split()[0] == "33"


def test_the_badge_is_never_clipped() -> None:
    state, now_s = scenes.steady()
    state = replace(state, latest=replace(state.latest, doing="loader_start", doing_for_s=3700.0))  # type: ignore[type-var]
    for width in (60, 80, 200):
        assert text_of([title_row(View(state, now_s), width)]).endswith("⚠ STALLED in loader start 1:01:40")
    long = replace(state, script="a" * 90 + ".py")
    assert text_of([title_row(View(long, now_s), 60)]).endswith("STALLED in loader start 1:01:40")


def test_the_figures_of_row_2_keep_their_columns() -> None:
    state, now_s = scenes.steady()
    for after in (state, scenes.early()[0], State()):
        row = text_of([speed_row(View(after, now_s), 80)])
        assert row.index("samples/s") == 9 and row.index("baseline") == 20
        assert row.index("since start") == 36 and row.index("data wait") == 55


def test_the_footer_drops_words_but_never_the_way_out() -> None:
    for width in (20, 40, 60, 200):
        row = text_of([footer_row(View(None, 0.0), width)])
        assert "q leave" in row and len(row) <= width


def test_a_long_command_to_copy_is_shown_whole() -> None:
    command = "cockpit run --config cockpit.toml -- " + " ".join(f"--option-{number} value" for number in range(12))
    lines = ["".join(text for text, _ in each).strip("│╭╮╰╯─ ") for each in saved_rows("/a/b", command, 80, BRAILLE)]
    assert command in " ".join(lines).replace("  ", " ")


def test_wrapping_loses_nothing() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_presses_move_a_knob_within_its_range() -> None:
    rows = {row.name: row for row in View(*scenes.early()).knobs}
    assert moved(rows["num_workers"], None, 1) == 1 and moved(rows["num_workers"], 3, 1) == 4
    assert moved(rows["num_workers"], None, -1) is None, "there is no -1"
    assert moved(rows["prefetch_factor"], None, 1) == 2, "nothing to start from: the first value that does something"
    assert moved(rows["in_order"], None, -1) is False and moved(rows["in_order"], None, 1) is None
    assert flipped(rows["in_order"], None) is False and flipped(rows["in_order"], False) is True
    assert flipped(rows["num_workers"], None) is None


def test_a_knob_that_waits_for_another_may_be_asked_together_with_it() -> None:
    state, _ = scenes.early()
    rows = {
        row.name: replace(row, reason=row.reason and "needs num_workers of 1 or more") for row in View(state, 0).knobs
    }
    prefetch = rows["prefetch_factor"]
    assert why_not_knob(prefetch, {}) == "prefetch_factor: needs num_workers of 1 or more"
    assert why_not_knob(prefetch, {"num_workers": 2}) is None
    assert why_not_knob(prefetch, {"in_order": False}) is not None


def test_what_is_asked_for_is_only_what_is_new() -> None:
    state, _ = scenes.steady()
    assert plan(state, {"num_workers": 4}).ask == {}, "it runs already"
    assert plan(state, {"persistent_workers": True}).ask == {}, "it is queued already"
    back = plan(state, {"persistent_workers": False, "num_workers": 6})
    assert back.drop and back.ask == {"num_workers": 6}


def test_a_short_knob_list_scrolls_with_the_cursor_and_says_so():
    state, now_s = scenes.steady()
    whole = View(state, now_s)
    count = len(whole.knobs)
    for cursor in range(count):
        rows = text_of(settings_rows(View(state, now_s, whole.knobs[cursor].name), 38, 3)).split("\n")
        assert len(rows) == 4
        assert any(each.lstrip("▸ ").startswith(f"{(cursor + 1) % 10} ") for each in rows[1:])
        assert f"of {count}" in rows[0]
    assert f"of {count}" not in text_of(settings_rows(whole, 38, count))
