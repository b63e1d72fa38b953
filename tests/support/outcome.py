"""What a training left behind, however it was run. Made by ``bare`` and ``under``; compared by the end-to-end tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
TRAINERS = REPO / "tests" / "trainers"


@dataclass(frozen=True)
class Outcome:
    """``output`` is stdout and stderr as they came, in one stream. ``status`` is 128 + n for signal n."""

    status: int
    output: bytes
    report: dict[str, Any] | None = None
    talk: str = ""
    data_dir: Path | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def final(self) -> dict[str, Any] | None:
        """The object behind the last ``FINAL``, or None where the training never got there."""
        lines = [line for line in self.text.splitlines() if line.startswith("FINAL ")]
        return json.loads(lines[-1][6:]) if lines else None

    @property
    def losses(self) -> list[str]:
        return [line for line in self.text.splitlines() if " loss " in line or " critic " in line]


def difference(ours: Outcome, bare: Outcome) -> str:
    """The first line that differs, and what follows it, for a failing test's message."""
    left, right = ours.text.splitlines(), bare.text.splitlines()
    for number, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine != theirs:
            then = "\n    ".join(line[:300] for line in left[number + 1 : number + 25])
            both = f"  under cockpit: {mine[:300]}\n  bare:          {theirs[:300]}"
            return f"line {number}:\n{both}\n  then:\n    {then}"
    longer = left[len(right) :] or right[len(left) :]
    return f"{len(left)} lines under cockpit, {len(right)} bare; the rest begins: {longer[:3]}"
