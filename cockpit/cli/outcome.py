"""What is left to say when a run is over or left: the exit status to pass on, the last lines, three lines of sum.

Called by ``run``, ``attach`` and ``demo`` after the screen or the headless watching has ended.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cockpit.history import crash
from cockpit.history.report import again_words, best_entry, best_words, rate_words, summary_of
from cockpit.history.state import State
from cockpit.model.errors import StartError

TAIL_BYTES = 16 * 1024
TAIL_LINES = 15
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def exit_status_of(state: State) -> int:
    """The training's own exit status; 125 where it was lost."""
    return StartError.code if state.exit_status is None else state.exit_status


def last_output(path: Path) -> list[str]:
    """The last lines of the training's output, harmless to print: why it failed usually stands there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    lines = [_CONTROL.sub("", line.rsplit("\r", 1)[-1]) for line in text.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line.strip()][-TAIL_LINES:]


def three_lines(state: State) -> list[str]:
    """Baseline; best; where the setup was saved, or how to come back."""
    summary, best = summary_of(state), best_entry(state)
    base = summary["baseline"]
    lines = [f"baseline  {rate_words(base['samples_per_s'] if base else None)} samples/s"]
    if best:
        factor = f" (×{summary['factor']:.2f})" if summary["factor"] else ""
        lines.append(f"best      {rate_words(best.after_samples_per_s)} samples/s{factor} {best_words(state, best)}")
    else:
        tried = any(entry.after_samples_per_s for entry in state.ledger)
        lines.append("best      " + ("nothing measured better than that" if tried else "nothing else was measured"))
    if state.phase not in ("ended", "lost"):
        lines.append(f"running   cockpit attach {state.run}")
    elif state.crash is not None and state.crash.offered:
        lines.append(f"restart   cockpit restart {state.run} {crash.goes_on_words(state.crash)}")
    elif state.saved_path:
        lines.append(f"saved     {again_words(state, state.saved_path)}")
    else:
        lines.append(f"report    cockpit report {state.run}")
    return lines
