"""What is said without a screen: progress, report, status page, the last three lines. Pure text from states."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.events import BEGAN_S, NOISY, Story, beginning, block, knob, loader, sample

from cockpit.cli import ask
from cockpit.cli.logs import first_kept, pieces
from cockpit.cli.outcome import exit_status_of, last_output, three_lines
from cockpit.cli.progress import Progress, clock_words
from cockpit.cli.status import page
from cockpit.history.fold import fold_all
from cockpit.history.report import duration, rate_words, report_of, summary_of, text_of
from cockpit.history.state import State
from cockpit.history.status import status_of
from cockpit.model.events import EventsDropped, LoadersSeen, ProbeLost, SetupSaved, TrainingEnded
from cockpit.model.knobs import UNSET


def tuned() -> tuple[Story, State]:
    """A run that was made twice as fast, and then asked for what it cannot have."""
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY])])
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), state)
    state = fold_all(story.blocks([200.0, 200.0, 202.0], wait_share=0.02), state)
    state = fold_all([LoadersSeen(story.at_s, (loader(knobs=(knob("num_workers", 0, 2),)),))], state)
    state = fold_all([story.asked("c2", {"pin_memory": True})], state)
    return story, fold_all([story.moved("c2", "refused", reason="there is no accelerator")], state)


def test_the_report_says_what_was_tried_what_it_gave_and_what_held_it_back() -> None:
    story, state = tuned()
    state = fold_all([SetupSaved(story.at_s, "/a/cockpit.toml"), TrainingEnded(story.at_s, 0, ("77 uploader",))], state)
    lines = text_of(state, story.at_s + 999)
    text = "\n".join(lines)
    assert lines[0].startswith("train-3f · train.py · ended with status 0 after ")
    assert "num_workers 0→2" in text and "faster" in text and "100 → 201 samples/s" in text
    assert "baseline 100 samples/s" in text and "best 201 samples/s, ×2.00, with num_workers 0→2" in text
    assert "in force: num_workers 2" in text and "saved to /a/cockpit.toml" in text
    assert (
        "at the baseline: waiting for the loader, 50 % of a step" in text
        and "at the end: the loader hardly: 2 %" in text
    )
    assert "pin_memory on: refused: there is no accelerator" in text and "Left running: 77 uploader" in text


def test_the_report_as_json_is_the_status_with_a_summary() -> None:
    story, state = tuned()
    told = report_of(state, story.at_s)
    assert told["schema"] == 1 and told["run"] == "train-3f"
    assert told["summary"]["factor"] == 2.005 and told["summary"]["best"]["id"] == "c1"
    assert told["summary"]["setup"] == {"num_workers": 2} and told["summary"]["saved"] is None


def test_a_run_of_which_nothing_is_known_claims_nothing() -> None:
    state = fold_all([*beginning(), TrainingEnded(BEGAN_S + 3, None), EventsDropped(BEGAN_S + 4, 7)])
    summary = summary_of(state)
    assert summary["baseline"] is None and summary["best"] is None and summary["factor"] is None
    text = "\n".join([*text_of(state, BEGAN_S + 9), *three_lines(state), *page(state, BEGAN_S + 9)])
    assert "lost: its exit status is not known" in text and "nothing was changed" in text and "– samples/s" in text
    assert "7 messages of the probe were lost" in text and " 0 samples/s" not in text and "×" not in text
    assert exit_status_of(state) == 125


def test_a_change_that_lost_speed_is_not_the_best() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY])])
    state = fold_all([*story.landed("c1", {"num_workers": 0}, {"num_workers": 2})], state)
    state = fold_all(story.blocks([60.0] * 4), state)
    assert summary_of(state)["best"] == {
        "samples_per_s": summary_of(state)["baseline"]["samples_per_s"],
        "id": None,
        "at_step": None,
    }
    assert any("nothing measured better" in line for line in text_of(state, story.at_s))
    assert "nothing measured better than that" in three_lines(state)[1]


def test_three_lines_say_baseline_best_and_how_to_come_back_or_use_it() -> None:
    story, state = tuned()
    assert three_lines(state) == [
        "baseline  100 samples/s",
        "best      201 samples/s (×2.00) with num_workers 0→2",
        "running   cockpit attach train-3f",
    ]
    ended = fold_all([TrainingEnded(story.at_s, 3)], state)
    assert three_lines(ended)[2] == "report    cockpit report train-3f" and exit_status_of(ended) == 3
    saved = replace(ended, saved_path="cockpit.toml")
    assert three_lines(saved)[2] == "saved     cockpit run --config cockpit.toml train.py"
    module = replace(saved, argv=("/usr/bin/python", "-m", "pkg", "--name", "a b"), script="pkg")
    assert three_lines(module)[2].endswith("--config cockpit.toml -- /usr/bin/python -m pkg --name 'a b'")


def test_the_status_page_shows_knobs_trials_and_reasons() -> None:
    story, state = tuned()
    text = "\n".join(page(state, story.at_s))
    assert "throughput  200 samples/s" in text or "throughput  – samples/s" in text
    assert "num_workers         2 (script 0) kept" in text
    assert "refused on – there is no accelerator" in text
    lost = "\n".join(page(fold_all([ProbeLost(story.at_s, 4711)], state), story.at_s))
    assert "probe       lost" in lost


def test_notes_and_what_was_asked_for_in_vain_stand_beside_what_is_in_force() -> None:
    rows = (
        knob("matmul", "highest", "high", note="no effect: this CPU"),
        knob("autocast", "off", "off", reason="no GradScaler"),
    )
    state = fold_all([*beginning(setup={"matmul": "high", "autocast": "fp16"}), LoadersSeen(1001.0, (), rows)])
    told = "\n".join(page(state, 1002.0))
    assert "high (script highest) kept – no effect: this CPU" in told
    assert "off (script off) refused fp16 – no GradScaler" in told
    lines = text_of(state, 1002.0)
    assert lines[lines.index("  in force: matmul high") + 1] == "    matmul high: no effect: this CPU"
    missed = replace(fold_all(beginning()[:3]), probe_reason="torch has not been imported yet")
    assert any("waiting: torch has not been imported yet" in line for line in page(missed, 1002.0))


def test_progress_is_calm_and_tells_each_change_once() -> None:
    _, state = tuned()
    progress, said = Progress(), []
    for tenth in range(3000):
        said += progress.said(state, BEGAN_S + tenth / 10)
    calm = [line for line in said if "num_workers" not in line and "pin_memory" not in line]
    assert 10 <= len(calm) <= 30
    changes = [line for line in said if line not in calm]
    assert [line.partition("] ")[2].partition(" ")[0] for line in changes] == ["num_workers", "pin_memory"]
    assert "kept, +" in changes[0] and "refused, there is no accelerator" in changes[1]


def test_progress_before_the_first_step_says_so_and_then_why_perhaps() -> None:
    silent = replace(fold_all(beginning()[:3]), step=None)
    progress = Progress()
    assert progress.said(silent, BEGAN_S) == ["[0:00] no step yet"]
    assert progress.said(silent, BEGAN_S + 1) == []
    missed = replace(silent, probe_reason="torch has not been imported yet")
    assert "[0:25] no probe: torch has not been imported yet" in progress.said(missed, BEGAN_S + 25)
    assert not any("no probe" in line for line in progress.said(missed, BEGAN_S + 60))
    assert Progress().said(replace(silent, phase="lost"), BEGAN_S) == ["[0:00] lost"]


@settings(deadline=None)
@given(some.floats(0, 3e7))
def test_times_and_rates_are_short(value: float) -> None:
    assert len(rate_words(value)) <= 10 and len(duration(value)) <= 13
    assert len(clock_words(value)) <= 12


def test_words_for_times_and_rates() -> None:
    assert [duration(s) for s in (0.4, 59.6, 119.4, 130, 7300, 400_000)] == [
        "0 s",
        "60 s",
        "119 s",
        "2 min 10 s",
        "2 h 01 min",
        "4 d 15 h",
    ]
    assert [rate_words(r) for r in (None, 0.0, 3.14159, 31.41, 314.15)] == ["–", "0.00", "3.14", "31.4", "314"]
    assert [clock_words(s) for s in (7.9, 760, 3723)] == ["0:07", "12:40", "1:02:03"]


def test_the_last_lines_of_the_output_are_harmless(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"early\n" * 5000 + b"\x1b[31mred\x1b[0m\x07\n10%\r50%\r100%\n\xff\xfe\n\n[/markup]\r\nlast")
    lines = last_output(log)
    assert lines[-5:] == ["red", "100%", "��", "[/markup]", "last"] and len(lines) == 15
    assert last_output(tmp_path / "none") == []


def test_following_the_output_gives_every_byte_and_then_ends(tmp_path: Path) -> None:
    log, over, parts = tmp_path / "output.log", threading.Event(), [b"a" * 300_000, b"\xff\x00\r", b"the end"]
    log.write_bytes(b"")

    def train() -> None:
        for part in parts:
            with log.open("ab") as file:
                file.write(part)
            time.sleep(0.05)
        over.set()

    thread = threading.Thread(target=train)
    thread.start()
    got = b"".join(pieces(log, over.is_set, pause=lambda _: time.sleep(0.005)))
    thread.join()
    assert got == b"".join(parts)


def test_an_output_that_was_truncated_is_read_anew(tmp_path: Path) -> None:
    log, looks = tmp_path / "output.log", iter([False, False, True])
    log.write_bytes(b"x" * 1000)

    def pause(_: float) -> None:
        log.write_bytes(b"new")

    assert b"".join(pieces(log, lambda: next(looks), pause)) == b"x" * 1000 + b"new"


def test_a_released_beginning_is_skipped(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    with log.open("wb") as file:
        file.seek(8 * 1024 * 1024)
        file.write(b"kept")
    data = b"".join(pieces(log, lambda: True))
    with log.open("rb") as file:
        at = first_kept(file.fileno())
    assert data.endswith(b"kept") and len(data) == 8 * 1024 * 1024 + 4 - at
    assert at > 0 or log.stat().st_blocks * 512 > 1_000_000, "a file system with holes tells where data begins"


def test_a_training_that_hangs_says_in_what() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks(NOISY), sample(story.at_s, doing="other", doing_for_s=60.0)])
    assert "stalled in step for 60 s" in page(state, story.at_s)[0]
    told = status_of(state, story.at_s)
    assert (told["activity"], told["activity_s"], told["stalled_in"]) == ("stalled", 60.0, "step")
    calm = fold_all([*beginning(), *story.blocks(NOISY)])
    assert status_of(calm, story.at_s)["stalled_in"] is None


def test_a_sample_of_an_old_second_is_not_a_step() -> None:
    state = fold_all([*beginning(), sample(BEGAN_S)])
    assert "no step seen" in page(state, BEGAN_S)[0]


def test_the_page_shows_no_time_for_what_a_training_without_a_loader_has_not_got() -> None:
    blind = replace(block(1002.0, 20), wait_s=None)
    (line,) = [line for line in page(fold_all([*beginning(), blind]), 1003.0) if line.startswith("a step")]
    assert "wait –, start –, forward 8.0" in line and line.endswith("other –")


def test_what_runs_as_it_began_is_no_merit_of_the_change_that_was_taken_back() -> None:
    story = Story()
    state = fold_all([*beginning(), *story.blocks([50.0, *NOISY])])
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), state)
    state = fold_all(story.blocks([200.0, 200.0, 202.0]), state)
    assert "with num_workers 0→2" in "\n".join([*three_lines(state), *text_of(state, story.at_s)])
    back = story.landed("c2", {"num_workers": 2}, {"num_workers": 0})
    state = fold_all([replace(back[0], origin="undo"), *back[1:]], state)
    state = fold_all(story.blocks([300.0, 300.0, 302.0]), state)
    for told in (three_lines(state), text_of(state, story.at_s)):
        (line,) = [line for line in told if line.strip().startswith("best")]
        assert line.endswith("as it began, all changes taken back")


@pytest.mark.parametrize(
    ("verb", "result", "words"),
    [
        ("undo", {"what": "num_workers 0→4", "asked": {"num_workers": 0}}, "num_workers 0→4 is taken back, to num_w"),
        ("undo", {"what": "env MINE 7", "asked": {"MINE": UNSET}}, "env MINE 7 is taken back, to MINE=(not set)"),
        ("undo", {"what": "started anew", "asked": {}}, "asked: started anew is taken back"),
        ("undo", {}, "asked: a change is taken back"),
        ("redo", {"what": "env MINE 7", "asked": {"MINE": "7"}}, "asked: env MINE 7 is applied again"),
        ("drop", {}, "asked: what is queued is withdrawn"),
    ],
)
def test_what_was_asked_for_is_said_whole_or_not_at_all(verb: str, result: dict[str, Any], words: str) -> None:
    said = ask.told(verb, result)
    assert words in said and not said.endswith((",", " ", "to"))
