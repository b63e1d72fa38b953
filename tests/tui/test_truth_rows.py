"""What the newer knobs, devices and ranks make of the picture: gaps, reasons in full, whose figures, at which size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import Story, beginning
from tui import scenes

from cockpit.history.fold import fold, fold_all
from cockpit.history.state import State
from cockpit.model.compiled import CompiledSeen
from cockpit.model.events import ChangeAsked, ChangeMoved, KnobReport, LoadersSeen, ProbeConnected, Sampled
from cockpit.model.gpu import GpuFigures, GpuSampled
from cockpit.model.ranks import RankInfo, RanksSeen
from cockpit.tui.about import about_rows
from cockpit.tui.charts import charts
from cockpit.tui.frame import frame, step_rows
from cockpit.tui.head import change_row, speed_row, title_row
from cockpit.tui.machine import loader_row, ranks_rows, why_no_probe
from cockpit.tui.now import noise_of
from cockpit.tui.plan import plan_for
from cockpit.tui.rows import text_of, width_of
from cockpit.tui.settings import hint_rows, settings_rows
from cockpit.tui.trials import trials_rows
from cockpit.tui.view import View
from cockpit.tui.wishes import moved

DEVICE = GpuFigures("GPU-aaaa", "H100", kernel_active_share=0.5, source="NVML")


# ---- the GPU in the chart ----
def seen(*shares: float | None, device: GpuFigures = DEVICE, ranks: tuple[ProbeConnected, ...] = ()) -> View:
    """One reading and one sample each half second."""
    events: list[object] = list(ranks)
    for at, share in enumerate(shares):
        at_s = scenes.BEGAN_S + at / 2
        events.append(GpuSampled(at_s, (replace(device, kernel_active_share=share), replace(DEVICE, uuid="GPU-bbbb"))))
        events.append(Sampled(at_s, 0.5, steps=1, samples=8, wall_s=0.5, forward_s=0.1, backward_s=0.1, cpu_main=1.0))
    return View(fold_all(events), scenes.BEGAN_S + len(shares) / 2 - 0.4)  # type: ignore[arg-type]


def chart(view: View) -> list[str]:
    plan = plan_for(80, 24, 10)
    assert plan is not None
    return text_of(charts(view, plan, 80)).split("\n")


def test_the_upper_half_is_the_lead_device_and_says_so() -> None:
    rows = chart(seen(*[0.5] * 40))
    assert rows[0].startswith("GPU    50%│") and rows[1].startswith("unverified│") and rows[2].startswith("U-aaaa 1/2│")
    verified = chart(seen(*[0.5] * 40, device=replace(DEVICE, verified=True)))
    assert verified[1].startswith("U-aaaa 1/2│")


def test_what_was_not_measured_is_a_gap_and_no_zero() -> None:
    rows = chart(seen(*[1.0] * 40, *[None] * 10, *[1.0] * 10))
    top = rows[0].split("│")[1]
    assert ("⣿ " in top.rstrip() and " ⣿" in top.strip("⣿ ")) or top.strip().count(" ") > 1, top
    idle = chart(seen(*[0.0] * 40))
    assert idle[0].startswith("GPU     0%│") and not idle[2].split("│")[1].strip()
    gone = chart(seen(*[1.0] * 40, None))
    assert gone[0].startswith("GPU      –│")


def test_a_device_that_never_tells_leaves_the_model_its_place() -> None:
    rows = chart(seen(*[None] * 40, device=replace(DEVICE, missing={"utilisation": "N/A (MIG)"})))
    assert rows[0].startswith("MODEL  40%│")


def test_the_lead_device_is_that_of_the_lowest_rank() -> None:
    told = [
        ProbeConnected(0.0, 12, "2", "3", "cuda", 1, 2, None, ("bbbb",)),
        ProbeConnected(0.0, 11, "2", "3", "cuda", 0, 2, None, ("aaaa",)),
    ]
    busy = replace(DEVICE, uuid="GPU-aaaa")
    assert chart(seen(*[0.25] * 20, device=busy, ranks=tuple(told)))[0].startswith("GPU    25%│")
    swapped = tuple(replace(each, rank=1 - (each.rank or 0)) for each in told)
    assert chart(seen(*[0.25] * 20, device=busy, ranks=swapped))[0].startswith("GPU    50%│")


def test_changes_too_close_for_their_names_keep_their_values() -> None:
    state, now_s = scenes.on_a_gpu()
    (axis,) = [row for row in chart(View(state, now_s)) if "◆" in row]
    assert "◆num_workers 0→2 ◆2→4" in axis and "◆off→bf16" in axis


# ---- knobs ----
def test_what_can_be_changed_stands_first_and_the_cursor_follows_its_knob() -> None:
    state, now_s = scenes.early()
    names = [knob.name for knob in View(state, now_s).knobs]
    assert names[0] == "num_workers" and set(names[-3:]) == {"prefetch_factor", "pin_memory", "persistent_workers"}
    assert View(state, now_s, "prefetch_factor").cursor == names.index("prefetch_factor")
    later, later_s = scenes.steady()
    assert View(later, later_s, "prefetch_factor").cursor == 1, "with workers it can be changed, and rises"


def test_script_as_a_value_is_what_the_script_has() -> None:
    state, now_s = scenes.early()
    state = fold(state, ChangeAsked(now_s, "a", {"autocast": "bf16"}, True))
    moves = ChangeMoved(now_s, "a", "settling", 9, before={"autocast": "script"}, in_force={"autocast": "bf16"})
    assert "autocast off→bf16" in text_of([change_row(View(fold(state, moves), now_s), 100)])


def test_reasons_and_notes_of_the_chosen_knob_are_told_in_full() -> None:
    state, now_s = scenes.early()
    long = "this region is compiled by the script, " * 6
    told = LoadersSeen(now_s, state.loaders, (KnobReport("compile", "on", "on", False, False, long.strip(", ")),))
    view = View(fold(state, told), now_s, "compile")
    one, two = (text_of(hint_rows(view, 80, height)) for height in (1, 2))
    assert one.endswith("(enter)") and len(two.split("\n")) == 2 and two.endswith("(enter)")
    words = " ".join(text_of(about_rows(view, 80, 24, 0)).replace("│", " ").split())
    assert words.count("this region is compiled by the script") == 6
    whole = text_of(hint_rows(view, 160, 2))
    assert "(enter)" not in whole and whole.replace("\n", "").count("region") == 6


def test_the_box_scrolls_where_the_terminal_is_low() -> None:
    state, now_s = scenes.steady()
    view = View(state, now_s, "batch_size")
    assert len(about_rows(view, 60, 9, 0)) == 9
    assert text_of(about_rows(view, 60, 9, 0)) != text_of(about_rows(view, 60, 9, 4))
    assert all(width_of(row) == 60 for row in about_rows(view, 60, 9, 99))


def test_refused_and_waiting_from_the_start_are_told_apart() -> None:
    state, now_s = scenes.early()
    state = replace(state, setup={"autocast": "fp16", "threads": 4})
    told = LoadersSeen(
        now_s,
        state.loaders,
        (
            KnobReport("autocast", "off", "off", True, True, "fp16 needs an enabled GradScaler"),
            KnobReport("threads", 2, None),
        ),
    )
    rows = text_of(settings_rows(View(fold(state, told), now_s), 60, 10))
    (autocast,) = [row for row in rows.split("\n") if "autocast" in row]
    assert "refused" in autocast and "queued" not in autocast


def test_a_batch_is_doubled_and_halved_from_the_scripts_own_size() -> None:
    state, now_s = scenes.early()
    (row,) = [knob for knob in View(state, now_s).knobs if knob.name == "batch_size"]
    row = replace(row, script=48, in_force=48)
    up = [48]
    for _ in range(3):
        up.append(moved(row, up[-1], 1))  # type: ignore[arg-type]
    down = [up[-1]]
    while (lower := moved(row, down[-1], -1)) is not None:
        down.append(lower)  # type: ignore[arg-type]
    assert up == [48, 96, 192, 384]
    assert down == [384, 192, 96, 48, 24, 12, 6, 3, 1]


def test_bars_of_two_batch_sizes_are_on_one_scale_and_say_which() -> None:
    state, now_s = scenes.steady()
    plan = plan_for(120, 40, 10)
    assert plan is not None and state.previous is not None
    half = tuple(replace(block, samples=(block.samples or 0) // 2) for block in state.previous.blocks)
    state = replace(state, previous=replace(state.previous, blocks=half))
    rows = text_of(step_rows(View(state, now_s), plan, 120)).split("\n")
    (before,) = [row for row in rows if row.startswith("before")]
    assert before.endswith("46.8 ms"), "twice as long as the step of half as many samples"
    assert rows[-1].endswith("for a step of 16 samples")
    same = text_of(step_rows(View(scenes.steady()[0], now_s), plan, 120))
    assert "for a step of" not in same and "23.4 ms" in same


def test_nothing_moves_when_the_kernels_knobs_are_told() -> None:
    state, now_s = scenes.early()
    without = replace(state, kernels=())
    for size in ((80, 24), (120, 40), (200, 60)):
        pictures = [text_of(frame(View(each, now_s), *size)).split("\n") for each in (state, without)]
        places = [
            [at for at, row in enumerate(rows) if row.startswith(("CPU", "loader", "now", "›"))] for rows in pictures
        ]
        assert places[0] == places[1]


# ---- a loader that feeds nothing, compiling, ranks, no probe ----
def test_a_loader_that_the_training_asks_no_more_says_so() -> None:
    state, now_s = scenes.steady()
    left = replace(state, loaders=(replace(state.loaders[0], unfed=True),))
    assert "nothing is fetched any more" in text_of([loader_row(View(left, now_s), 120, 11)])
    assert "fetched any more" not in text_of([loader_row(View(state, now_s), 120, 11)])


def test_compiling_is_told_apart_from_every_step() -> None:
    state, now_s = scenes.steady()
    for found, words in (
        (CompiledSeen(now_s, 14.24, 2, 1), "compiled 2 graphs in 14.2 s, 1 of them again"),
        (CompiledSeen(now_s, None, 1, 0), "compiled 1 graph"),
    ):
        row = text_of([loader_row(View(fold(state, found), now_s), 120, 11)])
        assert row.endswith(words)
    nothing = text_of([loader_row(View(fold(state, CompiledSeen(now_s, 0.0, 0, 0)), now_s), 120, 11)])
    assert "compiled" not in nothing and nothing.endswith("this training uses no GPU")


def test_compiling_is_no_hang() -> None:
    state, now_s = scenes.steady()
    busy = Sampled(now_s, 0.5, state.step, state.epoch, doing="compile", doing_for_s=14.2)
    assert text_of([title_row(View(fold(state, busy), now_s), 80)]).endswith("⚙ COMPILING 14 s")


def test_whose_figures_these_are_and_how_each_rank_fares() -> None:
    state, now_s = scenes.two_ranks()
    view = View(state, now_s)
    assert " samples/s rank 0 of 2  baseline" in text_of([speed_row(view, 120)])
    (row,) = ranks_rows(view, 120, 11, 1)
    assert text_of([row]) == "ranks      rank 0 1 004/s, waits 1 ms · rank 1 981/s, waits 3 ms"
    many = tuple(RankInfo(at, 100 + at, 5, None, 1000.0 - at, at != 3) for at in range(64))
    crowd = View(fold(state, RanksSeen(now_s, many, 64)), now_s)
    text = text_of(ranks_rows(crowd, 80, 11, 1))
    assert text.startswith("ranks      rank 3 gone · rank 63 937/s") and text.endswith("faster") and len(text) <= 80
    assert ranks_rows(View(scenes.steady()[0], now_s), 120, 11, 1) == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_ranks_are_on_the_screen_at_every_size(size: tuple[int, int]) -> None:
    rows = text_of(frame(View(*scenes.two_ranks()), *size)).split("\n")
    assert "rank 0 of 2" in rows[1] and any(row.startswith("ranks") for row in rows)


def test_the_reason_for_silence_is_told_where_it_is_known() -> None:
    state = State(phase="running", started_s=0.0, probe_reason="its command replaces PYTHONPATH \x1b[2J" + " x" * 60)
    told = why_no_probe(state, 30.0, 15.0)
    assert told[1].startswith("its command replaces PYTHONPATH") and max(map(len, told)) <= 64
    assert "\x1b" not in text_of(frame(View(state, 30.0), 80, 24))


# ---- all trials ----
def test_every_trial_says_in_full_why_and_on_what_it_rests() -> None:
    state, now_s = scenes.steady()
    reason = "the workers died at once: " + "no room left in /dev/shm " * 8
    note = "12 more workers of 1.2 GB each\x1b[2J, and 3 GB are left"
    state = fold(state, ChangeMoved(now_s, "q1", "rolled_back", 6000, reason=reason.strip(), note=note))
    rows = text_of(frame(View(state, now_s, tried=0), 80, 24)).split("\n")
    assert rows[3].startswith("TRIALS") and "rolled back" in rows[4]
    assert " ".join(" ".join(rows[5:9]).split()).startswith(reason.strip())
    text = "\n".join(rows)
    assert "said before: 12 more workers of 1.2 GB each, and 3 GB are left" in " ".join(text.split())
    assert "at step 887, stood still for 84 ms, 310→685 over " in text
    assert rows[-1].startswith(" ↑↓ scroll") and "esc back" in rows[-1]
    assert " baseline " in text and all(len(row) <= 80 for row in rows)
    many = {"autocast": "bf16", "compile": "max-autotune", "batch_size": 128}
    text = text_of(frame(View(fold(state, ChangeAsked(now_s, "q9", many)), now_s, tried=0), 80, 24))
    assert "\n    autocast bf16, compile max-autotune, batch_size 128\n" in text, "what the table cuts off"
    last = text_of(frame(View(state, now_s, tried=10**9), 60, 16)).split("\n")
    assert " baseline " in last[14] and not any(row.startswith("  3 ") for row in last), "past the end is the end"


def test_the_noise_never_runs_into_the_next_heading() -> None:
    view = View(*scenes.steady())
    noise = f"noise ±{100.0 * (noise_of(view.known) or 0.0):.1f}%"
    heads = [text_of(trials_rows(view, width, 1)) for width in range(20, 120)]
    assert noise in heads[-1] and noise not in heads[0]
    assert all(f"{noise} " in head for head in heads if noise in head)


def test_nothing_changed_yet_is_said_only_where_nothing_has() -> None:
    """A change that came before ten steps were measured has no before: that is not the same as no change."""
    story = Story()
    untouched = fold_all(beginning())
    changed = fold_all(
        [story.asked("c1", {"num_workers": 2}), story.moved("c1", "settling", in_force={"num_workers": 2})], untouched
    )
    plan = plan_for(120, 40, 10)
    assert plan is not None
    for state, told in ((untouched, "nothing changed yet"), (changed, "no step measured before it")):
        assert told in text_of(step_rows(View(state, story.at_s), plan, 120))
