"""The screen with a real training behind it: what it costs, and how soon a key is answered while output floods."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.screen_cost import cost
from support.bare import clean_env
from support.outcome import REPO, TRAINERS
from support.under import COCKPIT

pytestmark = pytest.mark.bench


def run(state_dir: Path, *command: str, **env: str) -> list[str]:
    """The command line that opens a screen on a new run; ``env`` reaches the training."""
    place = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(REPO)}
    words = [f"{name}={value}" for name, value in {**clean_env(), **place, **env}.items()]
    return ["env", "-i", *words, *COCKPIT, "run", "--state-dir", str(state_dir), "--", sys.executable, *command]


def test_with_a_real_training(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = cost(
        (80, 24), 15.0, run(state_dir, str(TRAINERS / "slow.py"), PAUSE_S="0.002", SAMPLES="800", EPOCHS="9999")
    )
    with capsys.disabled():
        print(f"\nscreen 80x24 on a real training: {found.cpu_pct:.2f} % of a core, {found.kb_s:.1f} kB/s, "
              f"first content with start {found.first_s:.2f} s, key to paint {found.key_ms:.0f} ms")  # fmt: skip
    assert found.kb_s > 0


def test_keys_while_output_floods(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ["megabytes", "bars", "controls", "long_line"] * 200
    found = cost((80, 24), 5.0, run(state_dir, str(TRAINERS / "flood.py"), *kinds, REST_S="0.02"))
    (log,) = state_dir.glob("runs/*/output.log")
    written = log.stat().st_size / 1e6
    with capsys.disabled():
        print(f"\nkey to paint while {written:.0f} MB of output flood in: {found.key_ms:.0f} ms (median of 10); "
              f"{found.cpu_pct:.2f} % of a core, {found.kb_s:.1f} kB/s to the terminal")  # fmt: skip
    assert written > 10
