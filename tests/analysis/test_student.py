"""Quantiles of Student's t against published tables, and against themselves."""

from __future__ import annotations

import pytest

from cockpit.analysis.student import t_quantile, two_sided_tail

# confidence, degrees of freedom, value: as in any statistics table
TABLE = [
    (0.95, 1, 12.7062),
    (0.95, 2, 4.3027),
    (0.95, 5, 2.5706),
    (0.95, 6, 2.4469),
    (0.95, 10, 2.2281),
    (0.95, 30, 2.0423),
    (0.95, 120, 1.9799),
    (0.95, 399, 1.9659),
    (0.99, 1, 63.6567),
    (0.99, 5, 4.0321),
    (0.99, 20, 2.8453),
    (0.90, 7, 1.8946),
    (0.50, 3, 0.7649),
]


@pytest.mark.parametrize(("confidence", "df", "value"), TABLE)
def test_quantiles_are_those_of_the_table(confidence: float, df: int, value: float) -> None:
    assert t_quantile(confidence, df) == pytest.approx(value, abs=6e-5 * max(1.0, value))


@pytest.mark.parametrize("df", [1, 2, 5, 17, 100, 5000])
def test_the_tail_of_a_quantile_is_what_was_asked_for(df: int) -> None:
    for confidence in (0.5, 0.8, 0.95, 0.999):
        assert two_sided_tail(t_quantile(confidence, df), df) == pytest.approx(1 - confidence, abs=1e-9)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert t_quantile(0.95, 1_000_000) == pytest.approx(1.959964, abs=1e-4)
