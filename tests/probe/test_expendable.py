"""Who waits for its turn is ended before the training where memory runs out, and begins as if that had never been."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.probe import expendable

REPO = Path(__file__).resolve().parents[2]
SOURCE = """
from cockpit.probe import expendable
now = lambda: open(expendable.PLACE).read().strip()
began = now()
restore = expendable.offer()
print(began, now())
restore()
print(now())
"""


def test_offered_and_taken_back() -> None:
    done = subprocess.run([sys.executable, "-c", SOURCE], cwd=REPO, capture_output=True, text=True, check=True)
    began, meanwhile, after = done.stdout.split()
    assert meanwhile == "1000" and after == began


def test_whoever_could_not_go_back_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a training would run that is the first to go."""
    place = tmp_path / "oom_score_adj"
    place.write_text("-200\n")
    put = expendable._put

    def refused(path: str, value: int) -> None:
        if value < 0:
            raise PermissionError(13, "denied")
        put(path, value)

    monkeypatch.setattr(expendable, "_put", refused)
    with pytest.raises(PermissionError):
        expendable.offer(str(place))


@pytest.mark.parametrize("text", [None, "", "no number"])
def test_where_there_is_no_such_thing_nothing_happens(tmp_path: Path, text: str | None) -> None:
    place = tmp_path / "oom_score_adj"
    if text is not None:
        place.write_text(text)
    expendable.offer(str(place))()
    assert (place.read_text() if place.exists() else None) == text
