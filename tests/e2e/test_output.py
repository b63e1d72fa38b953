"""The training's own output: kept to the byte whatever it holds, cleaned where people see it, never in anyone's way."""

from __future__ import annotations

import json
from pathlib import Path

from support.bare import command_of, run_bare
from support.outcome import TRAINERS, difference
from support.under import detached, logs, peek, run_under, status, wait_until

FLOOD = TRAINERS / "flood.py"
KINDS = ("controls", "markup", "invalid", "bars", "wide", "long_line", "megabytes", "read", "tty")


def test_kept_to_the_byte(state_dir: Path) -> None:
    """Megabytes, control codes, markup, invalid bytes, bars, a 5 MB line, a closed stdin, no terminal to write to."""
    command = command_of(FLOOD, KINDS)
    under = run_under(command, state_dir)
    bare = run_bare(command, state_dir)
    assert under.status == 0, under.talk
    assert under.output == bare.output, difference(under, bare)
    assert len(under.output) > 7_000_000
    assert b"EOFError" in under.output
    assert logs(state_dir) == bare.output


def test_talk_on_stderr_is_clean(state_dir: Path) -> None:
    """What cockpit itself says while such a training runs holds no control code, no markup gone wrong, and is short."""
    under = run_under(command_of(FLOOD, ("controls", "invalid", "markup", "long_line")), state_dir)
    assert under.report is not None and under.report["exit_status"] == 0
    assert len(under.talk) < 4_000
    assert not [char for char in under.talk if ord(char) < 32 and char != "\n"]


def test_asked_while_it_floods(state_dir: Path) -> None:
    """The engine answers while megabytes come in, and cleans the newest line of what would hurt a screen."""
    kinds = ("megabytes", "bars", "controls") * 12
    with detached(command_of(FLOOD, kinds), state_dir):
        for _ in range(5):
            assert status(state_dir)["state"] in ("running", "ended")
        wait_until(lambda: peek(state_dir)["state"] == "ended", "the end of the flood")
    assert status(state_dir)["exit_status"] == 0


def test_last_line_is_cleaned_in_the_report(state_dir: Path) -> None:
    under = run_under(command_of(FLOOD, ("controls", "markup")), state_dir)
    assert under.data_dir is not None
    lines = [
        json.loads(line) for journal in sorted(under.data_dir.glob("journal-*.jsonl")) for line in journal.open("rb")
    ]
    seen = [event["line"] for event in lines if "line" in event] or [
        event["e"]["line"] for event in lines if "line" in event.get("e", {})
    ]
    assert seen, lines[-3:]
    assert not [char for line in seen for char in line if ord(char) < 32 or 127 <= ord(char) < 160]
