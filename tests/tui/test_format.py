"""Numbers: a dash for what is not known, a zero only for a measured zero, and no more places than mean something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.tui import format as show

ANY = st.one_of(st.none(), st.floats(0, 1e9), st.sampled_from([float("nan"), float("inf"), -1.0, 1e300]))


@given(ANY)
def test_every_number_can_be_shown(value: float | None) -> None:
    for shown in (show.rate, show.share, show.delta, show.factor, show.step_time, show.clock, show.cores):
        text = shown(value)
        assert 0 < len(text) <= 16 or value == 1e300
        if value is None or value != value:
            assert text == "–", "not measured is never a number"


@given(st.floats(), st.floats())
def test_intervals_can_be_shown(low: float, high: float) -> None:
    assert len(show.interval((low, high))) < 640 and show.interval(None) == "" and show.reach(None) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1932.4, "1 932"),
        (318.0, "318"),
        (99.96, "100"),
        (31.84, "31.8"),
        (9.996, "10.0"),
        (0.417, "0.42"),
        (0.0, "0.00"),
    ],
)
def test_rates(value: float, text: str) -> None:
    assert show.rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0%"), (0.004, "<1%"), (0.006, "1%"), (0.283, "28%"), (1.0, "100%")])
def test_shares(value: float, text: str) -> None:
    assert show.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(37.71, "+37.7%"), (-0.04, "-0.0%"), (0.0, "+0.0%"), (1234.5, "+1234%"), (-12.0, "-12.0%")]
)
def test_deltas_carry_their_sign(value: float, text: str) -> None:
    assert show.delta(value) == text


def test_the_rest_by_example() -> None:
    assert show.interval((29.1, 49.0)) == "[+29, +49]" and show.interval((-1.2, 0.94)) == "[-1.2, +0.9]"
    assert show.reach((36.3, 39.1)) == "±1.4"
    assert show.factor(6.071) == "×6.07" and show.factor(12.44, "x") == "x12.4" and show.factor(131.2) == "×131"
    assert (
        show.step_time(45.83) == "45.8 ms" and show.step_time(1240.0) == "1.24 s" and show.step_time(0.9) == "0.90 ms"
    )
    assert show.clock(31.9) == "0:31" and show.clock(724) == "12:04" and show.clock(11220) == "3:07:00"
    assert show.clock(187200) == "2d 04h" and show.clock(-3) == "0:00"
    assert show.count(1234567) == "1 234 567" and show.count(None) == "–"
    assert show.cores(0.0) == "0.0" and show.cores(1.66) == "1.7"
