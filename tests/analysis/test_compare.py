"""The verdict words, and how often an unchanged run is called changed: step times with autocorrelation, fixed seeds."""

from __future__ import annotations

import random
import time

import pytest
from support.events import block

from cockpit.analysis.compare import (
    FASTER,
    NO_CHANGE,
    NOT_COMPARABLE,
    SETTLING,
    SLOWER,
    WITHIN_NOISE,
    WORDS,
    compare,
)
from cockpit.analysis.policy import POLICY
from cockpit.analysis.windows import Window, length_for, windows
from cockpit.model.events import BlockMeasured

CALM = (100.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.0)
WILD = (100.0, 130.0, 80.0, 120.0, 75.0, 105.0, 95.0, 115.0)


def side(*rates: float) -> list[Window]:
    return [Window(20, round(1000 * per_s), 1000.0) for per_s in rates]


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (CALM, (150.0, 151.0), FASTER),
        (CALM, (70.0, 70.5), SLOWER),
        (CALM, (100.1, 100.3), NO_CHANGE),
        (WILD, (105.0, 110.0), WITHIN_NOISE),
        (CALM, (), SETTLING),
        (CALM[:5], (150.0, 151.0), NOT_COMPARABLE),
        ((), (150.0,), NOT_COMPARABLE),
    ],
)
def test_the_word_follows_from_the_interval(before: tuple[float, ...], after: tuple[float, ...], word: str) -> None:
    delta = compare(side(*before), side(*after))
    assert delta.verdict == word and word in WORDS
    assert (delta.before_windows, delta.after_windows) == (len(before), len(after))
    measured = word not in (SETTLING, NOT_COMPARABLE)
    assert (delta.delta_pct is not None) == measured and (delta.interval_pct is not None) == measured


def test_a_gain_within_three_percent_is_never_called_faster() -> None:
    delta = compare(side(*[100.0, 100.01] * 4), side(102.0, 102.0))
    assert delta.verdict == NO_CHANGE and delta.delta_pct == pytest.approx(2.0, abs=0.1)


def test_the_interval_is_as_wide_as_the_run_is_noisy() -> None:
    calm, wild = compare(side(*CALM), side(150.0, 150.0)), compare(side(*WILD), side(150.0, 150.0))
    assert calm.interval_pct and wild.interval_pct
    assert wild.interval_pct[1] - wild.interval_pct[0] > 10 * (calm.interval_pct[1] - calm.interval_pct[0])


def test_windows_without_a_rate_are_not_comparable() -> None:
    blind = [Window(20, None, 2.0)] * 8
    assert compare(blind, side(100.0)).verdict == NOT_COMPARABLE
    assert compare(side(*CALM), blind).verdict == NOT_COMPARABLE


def run_of_blocks(chance: random.Random, count: int, rho: float, noise: float, drift: float) -> list[BlockMeasured]:
    """Blocks of ten 20 ms steps whose log times are autocorrelated (AR(1)) and drift slowly."""
    blocks, state = [], chance.gauss(0.0, noise)
    for number in range(count):
        wall = 0.0
        for _ in range(10):
            state = rho * state + chance.gauss(0.0, noise * (1.0 - rho * rho) ** 0.5)
            wall += 0.02 * (1.0 + state) * (1.0 + drift * number / count)
        blocks.append(block(float(number), 10 * number, 80.0 / wall, steps=10))
    return blocks


def false_claims(rho: float, noise: float, drift: float, runs: int = 150) -> float:
    """The share of unchanged runs that were called faster or slower at any of the looks after a "change"."""
    chance, claims = random.Random(20), 0
    for _ in range(runs):
        blocks = run_of_blocks(chance, 200, rho, noise, drift)
        before = windows(blocks[:120], length_for(0))[1:]
        after = windows(blocks[123:], length_for(0))[: POLICY.windows_after_most]
        looks = [compare(before, after[:count]).verdict for count in range(2, len(after) + 1)]
        claims += any(word in (FASTER, SLOWER) for word in looks)
    return claims / runs


@pytest.mark.parametrize(
    ("rho", "noise", "drift"),
    [(0.0, 0.3, 0.0), (0.8, 0.2, 0.0), (0.95, 0.15, 0.0), (0.98, 0.25, 0.0), (0.9, 0.1, 0.02)],
)
def test_an_unchanged_run_is_seldom_called_changed(rho: float, noise: float, drift: float) -> None:
    began = time.process_time()
    share = false_claims(rho, noise, drift)
    print(f"false claims at rho {rho}: {share:.0%} ({time.process_time() - began:.1f} s)")
    assert share <= 0.20


def test_a_real_gain_is_found_in_the_same_noise() -> None:
    chance, found = random.Random(21), 0
    for _ in range(50):
        before = windows(run_of_blocks(chance, 120, 0.8, 0.2, 0.0), length_for(0))[1:]
        after = windows(run_of_blocks(chance, 40, 0.8, 0.2, 0.0), length_for(0))
        faster = [Window(window.steps, window.samples, window.wall_s / 1.4) for window in after]
        found += compare(before, faster).verdict == FASTER
    assert found >= 45
