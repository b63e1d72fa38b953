"""A pause in the fold: phase, times, gaps in the charts, and what is thrown away after it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.events import beginning, block, loader

from cockpit.cli.progress import Progress
from cockpit.cli.status import page
from cockpit.history import pause
from cockpit.history.activity import activity_of
from cockpit.history.fold import fold_all
from cockpit.history.report import headline
from cockpit.history.status import live_rate, status_of
from cockpit.model.events import (
    ChangeAsked,
    ChangeMoved,
    LoadersSeen,
    ProbeConnected,
    ProbeLost,
    Sampled,
    Stopping,
    TrainingEnded,
)
from cockpit.model.pause import PauseMoved

ASKED = PauseMoved(1010.0, "p", "asked", 40)
PAUSED = PauseMoved(1011.0, "p", "paused", 41)
RESUMING = PauseMoved(1070.0, "p", "resuming", 41)
OVER = PauseMoved(1071.0, "p", "over", 41)


def sample(at_s: float, doing: str = "forward", steps: int = 5) -> Sampled:
    figures = dict(samples=8 * steps, wall_s=0.5, wait_s=0.1, forward_s=0.1, backward_s=0.1, optimizer_s=0.1)
    return Sampled(at_s, 0.5, step=41, epoch=0, steps=steps, doing=doing, **(figures if steps else {}))


def running(capacity: int = 0):
    return [*beginning(), LoadersSeen(1002.0, (loader(capacity=capacity),)), sample(1009.5)]


def test_phase_times_and_words() -> None:
    asked = fold_all([*running(), ASKED])
    assert (
        asked.phase == "running" and pause.is_asked(asked) and "when the step under way has ended" in page(asked, 1)[3]
    )
    held = fold_all([replace(PAUSED, step=44)], asked)
    assert held.step == 44, "what was not sampled yet"
    held = fold_all([PAUSED], asked)
    assert held.phase == "paused" and not pause.is_asked(held)
    told = status_of(held, 1031.0)
    assert (told["state"], told["activity"], told["activity_s"]) == ("paused", None, 20.0)
    assert told["pause"] == {"state": "paused", "at_step": 41, "reason": None} and told["paused_s"] == 20.0
    assert activity_of(held, 1031.0).word == "paused" and "paused for 20 s after 31 s" in headline(held, 1031.0)
    assert "cockpit resume train-3f" in "\n".join(page(held, 1031.0))
    on = fold_all([RESUMING, OVER], held)
    assert on.phase == "running" and status_of(on, 2000.0)["paused_s"] == 60.0
    assert "60 s of it paused" in headline(on, 2000.0) and pause.words(on) is None


def test_the_charts_have_a_gap_and_nothing_is_stalled() -> None:
    during = [sample(1011.0 + at / 2, "paused", steps=0) for at in range(1, 118)]
    held = fold_all([*running(), block(1009.0, 40), ASKED, PAUSED, *during])
    points = [point for point in held.rings[0].points if point.at_s > 1011.0]
    assert len(points) > 100
    assert not any(point.samples_per_s or point.model or point.wait for point in points), "a gap, and no zeros"
    assert live_rate(held) is None
    on = fold_all([OVER, sample(1071.1, "paused", steps=0)], held)
    assert activity_of(on, 1071.2).word != "stalled"
    again = fold_all([sample(1072.0), sample(1072.5)], on)
    assert live_rate(again) == pytest.approx(80.0) and again.rings[0].points[-1].samples_per_s


def test_steps_fed_from_queues_that_had_time_to_fill_are_thrown_away() -> None:
    change = [
        ChangeAsked(1003.0, "c", {"num_workers": 2}, now=True),
        ChangeMoved(1004.0, "c", "settling", step=5, before={"num_workers": 0}, in_force={"num_workers": 2}),
    ]
    trial = fold_all([*running(4), *change, block(1006.0, 30, change="c"), block(1007.0, 50, change="c")])
    kept, total = trial.current.blocks, trial.ledger[0].settle_steps
    on = fold_all([ASKED, PAUSED, OVER], trial)
    assert on.current.blocks == kept and on.ledger[0].state == "settling", "the trial goes on"
    assert on.current.discard_steps == 6 and on.ledger[0].settle_steps == total + 6
    after = fold_all([block(1080.0, 70, rate=900.0, change="c")], on)
    assert after.current.blocks == kept, "what had been made in the pause is nobody's measure"
    assert fold_all([block(1081.0, 90, change="c")], after).current.blocks != kept


def test_words_that_come_twice_late_or_never() -> None:
    held = fold_all([*running(), ASKED, PAUSED, RESUMING])
    assert fold_all([PauseMoved(1070.5, "p", "paused", 41)], held).pause == RESUMING, "a new engine's greeting"
    on = fold_all([OVER, PauseMoved(1072.0, "p", "over", 41, "another reason")], held)
    assert on.pause == OVER and on.paused_s == 60.0
    assert fold_all([PAUSED], on).phase == "running"
    lost = fold_all([*running(), ASKED, PAUSED, sample(1011.2), sample(1012.0)])
    assert lost.phase == "paused", "steps from before it"
    assert fold_all([sample(1020.0)], lost).phase == "running", "whoever makes steps is not paused"


def test_a_stop_and_the_end() -> None:
    stopping = fold_all([*running(), ASKED, PAUSED, RESUMING, Stopping(1070.0, 1100.0)])
    assert stopping.phase == "stopping"
    assert fold_all([OVER], stopping).phase == "stopping"
    ended = fold_all([TrainingEnded(1080.0, 143)], stopping)
    assert ended.phase == "ended" and ended.paused_s == 69.0 and ended.pause and ended.pause.state == "over"
    waited = fold_all([*running(), ASKED, TrainingEnded(1012.0, 0)])
    assert waited.pause and waited.pause.state == "refused" and "before it took hold" in (pause.words(waited) or "")
    assert "has ended" in (pause.why_not(ended) or "") and "is stopping" in (pause.why_not(stopping) or "")


def test_why_not() -> None:
    assert "no training step has ended" in (pause.why_not(fold_all(beginning())) or "")
    one = fold_all(running())
    assert pause.why_not(one) is None
    two = [ProbeConnected(1001.0, pid, "2.14.1", "3.11.2", rank=pid, world=2) for pid in (0, 1)]
    assert "several ranks" in (pause.why_not(fold_all([*running(), *two])) or "")
    lost = fold_all([ProbeLost(1010.0, 4711)], one)
    assert pause.why_not(lost) is None, "it is told as soon as it is heard again"
    assert "not heard just now" in (pause.words(fold_all([ASKED], lost)) or "")
    off = ProbeConnected(1002.0, 4711, "2.14.1", "3.11.2", off={"pause": "KeyError: x"})
    assert "KeyError: x" in (pause.why_not(fold_all([off], one)) or "")
    assert "paused already" in (pause.why_not(fold_all([PAUSED], one)) or "")


def test_headless_says_when_why_and_for_how_long() -> None:
    talk, state = Progress(), fold_all([*running(), ASKED])
    said: list[str] = []
    for event in (PAUSED, PauseMoved(1071.0, "p", "over", 41, "the engine was gone")):
        said += talk.said(state, 1010.0)
        state = fold_all([event], state)
    said += talk.said(state, 1071.0)
    refused = [PauseMoved(1080.0, "q", "asked", 50), PauseMoved(1080.1, "q", "refused", 50, "a profiler runs")]
    said += [*talk.said(fold_all(refused, state), 1081.0), *talk.said(fold_all(refused, state), 1082.0)]
    text = "\n".join(said)
    assert "goes on, paused for 60 s: the engine was gone" in text
    assert text.count("not paused: a profiler runs") == 1
    assert any(line.endswith("] paused") for line in Progress().said(fold_all([*running(), PAUSED]), 1012.0))
