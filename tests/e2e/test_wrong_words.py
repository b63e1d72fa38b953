"""Wrong input: one clear sentence that names what is wrong and what to do, the promised status, and nothing started."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outcome import TRAINERS
from support.under import ask, processes_of

PLAIN = str(TRAINERS / "exits.py")

KNOBS = (
    (("--set", "num_worker=2"), ("num_worker", "num_workers")),
    (("--set", "workers=2"), ("workers", "num_workers")),
    (("--set", "num_workers=-1"), ("num_workers", "-1")),
    (("--set", "num_workers=two"), ("num_workers", "two")),
    (("--set", "num_workers=1.5"), ("num_workers", "1.5")),
    (("--set", "num_workers=99999999999999999999"), ("num_workers",)),
    (("--set", "num_workers=²"), ("num_workers",)),
    (("--set", "num_workers="), ("num_workers",)),
    (("--set", "num_workers"), ("num_workers", "=")),
    (("--set", "pin_memory=maybe"), ("pin_memory", "on or off")),
    (("--set", "prefetch_factor=0"), ("prefetch_factor", "1 to")),
    (("--at", "epoch:one", "num_workers=2"), ("epoch:one",)),
    (("--at", "fortnight:1", "num_workers=2"), ("fortnight",)),
    (("--at", "step:-3", "num_workers=2"), ("step:-3",)),
    (("--at", "epoch:1", "num_wrokers=2"), ("num_wrokers", "num_workers")),
    (("--at", "epoch:1"), ("script",)),
    (("--sett", "num_workers=2"), ("--sett", "--set")),
    (("--name", "../../etc"), ("../../etc",)),
    (("--name", ""), ("''",)),
    (("--grace", "soon"), ("grace", "soon")),
)

CONFIGS = (
    (b"schema = 1\n[setup\nnum_workers = 2\n", ("given.toml",)),
    (b"\xff\xfe\x00\x01", ("given.toml",)),
    (b"", ("given.toml", "schema")),
    (b"[project]\nname = 'somebody-else'\n", ("given.toml", "schema")),
    (b"schema = 99\n[setup]\nnum_workers = 2\n", ("given.toml", "99")),
    (b"schema = 'one'\n[setup]\nnum_workers = 2\n", ("given.toml", "schema")),
    (b"schema = 1\nsetup = 3\n", ("given.toml", "setup")),
    (b"schema = 1\n[setup]\nnum_workers = 'many'\n", ("given.toml", "num_workers", "many")),
    (b"schema = 1\n[setup]\npin_memory = 1\n", ("given.toml", "pin_memory")),
)


@pytest.mark.parametrize(("options", "named"), KNOBS, ids=lambda words: " ".join(words))
def test_options_that_make_no_sense(state_dir: Path, options: tuple[str, ...], named: tuple[str, ...]) -> None:
    refused(state_dir, 125, named, "run", "--headless", *options, PLAIN)


@pytest.mark.parametrize(("content", "named"), CONFIGS, ids=lambda part: repr(part)[:40])
def test_files_that_make_no_sense(state_dir: Path, content: bytes, named: tuple[str, ...]) -> None:
    given = state_dir / "given.toml"
    given.write_bytes(content)
    refused(state_dir, 125, named, "run", "--headless", "--config", str(given), PLAIN)


def test_a_file_that_is_not_there(state_dir: Path) -> None:
    refused(
        state_dir,
        125,
        ("nothing.toml",),
        "run",
        "--headless",
        "--config",
        str(state_dir / "nothing.toml"),
        PLAIN,
    )
    refused(state_dir, 125, (str(state_dir),), "run", "--headless", "--config", str(state_dir), PLAIN)


@pytest.mark.parametrize("verb", ["attach", "status", "set", "stop", "logs", "save", "report", "undo", "baseline"])
def test_a_run_that_is_not_there(state_dir: Path, verb: str) -> None:
    words = ["num_workers=2"] if verb == "set" else []
    refused(state_dir, 3, ("no runs yet",), verb, "nowhere", *words)


def test_what_cannot_be_started(state_dir: Path) -> None:
    refused(state_dir, 127, ("missing.py",), "run", "--headless", str(state_dir / "missing.py"))
    refused(state_dir, 127, ("no-such-command",), "run", "--headless", "--", "no-such-command")
    plain = state_dir / "plain.txt"
    plain.write_text("not a program")
    refused(state_dir, 126, ("plain.txt",), "run", "--headless", "--", str(plain))
    refused(state_dir, 125, ("script",), "run", "--headless")


def test_verbs_that_are_none(state_dir: Path) -> None:
    refused(state_dir, 2, ("statsu", "status"), "statsu")
    refused(state_dir, 2, ("cockpit run train.py",), "train.py")


def refused(state_dir: Path, code: int, named: tuple[str, ...], *words: str) -> None:
    """The command line fails with ``code`` and one sentence that holds each of ``named``; no process is left of it."""
    verb, *rest = words
    answer = ask(state_dir, verb, *rest)
    lines = answer.stderr.splitlines()
    assert (answer.returncode, answer.stdout) == (code, ""), answer.stderr
    assert len(lines) == 1, answer.stderr
    assert lines[0].startswith("cockpit: ")
    for word in named:
        assert word in lines[0]
    assert processes_of(state_dir) == []
