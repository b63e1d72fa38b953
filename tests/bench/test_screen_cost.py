"""The screen's budget, printed: CPU, bytes, first picture, key to paint. A scripted run on a GPU, at three sizes."""

from __future__ import annotations

import os
import sys

import pytest
from bench.screen_cost import cost

BUDGET = {(80, 24): (1.3, 6.9), (120, 40): (1.4, 11.0), (200, 60): (2.4, 17.0)}


@pytest.mark.bench
def test_what_the_screen_costs(capsys: pytest.CaptureFixture[str]) -> None:
    for size, (cpu_pct, kb_s) in BUDGET.items():
        found = cost(size, 15.0, [sys.executable, "-m", "tui.play", "131", "1", "gpu"])
        with capsys.disabled():
            print(
                f"\nscreen {size[0]}x{size[1]}: {found.cpu_pct:.2f} % of a core (budget {cpu_pct}), "
                f"{found.kb_s:.1f} kB/s (budget {kb_s}), first picture {found.first_s:.2f} s (budget 0.5), "
                f"key to paint {found.key_ms:.0f} ms (budget 20); load of the machine {os.getloadavg()[0]:.1f}"
            )
        assert found.kb_s < 2 * kb_s, "twice the bytes is a mistake, whatever else runs here"
