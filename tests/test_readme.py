"""The README says what is true: its commands are understood, its tables are ours, what can be tried is tried."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.bare import clean_env
from support.events import beginning
from support.faults import FAULTS
from support.kernel_faults import KERNEL_FAULTS
from support.wrong import ROWS, table

from cockpit.cli.launch_words import moment
from cockpit.cli.verbs import VERBS, verb_named
from cockpit.cli.words import split
from cockpit.config.assign import assignment
from cockpit.config.setup import read_setup
from cockpit.history.actions import ACTIONS
from cockpit.history.activity import BADGES
from cockpit.history.fold import fold_all
from cockpit.history.report import report_of
from cockpit.model.knobs import KNOBS

REPO = Path(__file__).resolve().parents[1]
README = (REPO / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SHELL = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.strip()]
INLINE = re.findall(r"`(cockpit [^`]*)`", README)
COMMANDS = list(dict.fromkeys([line for line in SHELL if line.startswith("cockpit ")] + INLINE))


def test_a_picture_a_sentence_and_two_commands_come_first() -> None:
    top = README.split("\n## ")[0]
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", top)
    assert (REPO / picture).is_file(), "make it with: python screenshots/make.py"
    assert len(re.findall(r"^\*\*.+\*\*$", top, re.MULTILINE)) == 1
    assert [line.rpartition("&& ")[2] for line in SHELL[:2]] == [".venv/bin/cockpit demo", ".venv/bin/python -m pytest"]
    assert all(line.startswith("python3 -m venv .venv && .venv/bin/pip install ") for line in SHELL[:2])


def test_the_ci_runs_the_readmes_own_test_command() -> None:
    found = subprocess.run(
        ["grep", "-cE", "^python3 -m venv .*-m pytest$", "README.md"], cwd=REPO, capture_output=True, text=True
    )
    assert found.stdout.strip() == "1"
    assert "'^python3 -m venv .*-m pytest$' README.md" in (REPO / ".ci" / "run").read_text()


def test_the_extras_that_it_installs_exist() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    named = re.findall(r"\.\[(\w+)\]", "\n".join(SHELL))
    assert named == ["demo", "dev"] and set(named) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_in_it_is_understood(line: str) -> None:
    import importlib

    name, *words = shlex.split(line)[1:]
    verb = verb_named(name)
    found = split(words, importlib.import_module(f"cockpit.cli.{verb.module}").OPTIONS, script=name == "run")
    for when, word in found.all("--at"):
        assert moment(when) and assignment(word)
    if name == "set":
        assert all(assignment(word) for word in found.rest if "=" in word)


def test_every_verb_is_mentioned() -> None:
    missing = [verb.name for verb in VERBS if f"cockpit {verb.name}" not in README]
    assert missing == []


def test_every_knob_is_mentioned_and_no_other() -> None:
    sentence = re.search(r"Knobs of this version: (.*?), of the data", README, re.DOTALL)
    assert sentence and re.findall(r"`(\w+)`", sentence[1]) == [knob.name for knob in KNOBS]


def test_every_key_that_acts_on_the_run_is_in_its_table() -> None:
    table = README.split("| key | does |")[1].split("\n\n")[0]
    keys = set(re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:])))
    shown = {part for action in ACTIONS for part in action.shown.split()}
    assert keys <= shown
    for action in ACTIONS:
        if action.acts:
            assert keys & set(action.shown.split()), action.name


def test_the_setup_file_in_it_can_be_loaded(tmp_path: Path) -> None:
    ((_, text),) = [block for block in BLOCKS if block[0] == "toml"]
    (tmp_path / "c.toml").write_text(text)
    found = read_setup(tmp_path / "c.toml")
    assert found.warnings == () and found.wishes.knobs == {"num_workers": 4} and found.measured.interval
    assert found.wishes.environment == {"OMP_NUM_THREADS": "4"}


class Thing:
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise AssertionError("nothing is restored outside cockpit")


def test_the_lines_for_the_script_run_and_those_without_cockpit_are_the_tested_ones() -> None:
    (three,) = [text for kind, text in BLOCKS if kind == "python"]
    (two,) = [text for kind, text in BLOCKS if kind == "text" and "import session" in text]
    names: dict[str, Any] = {name: Thing() for name in ("model", "optimizer", "scheduler")}
    exec(f"{three}    pass", names)
    assert (names["epoch"], names["run"].restored) == (89, None)
    assert two in (REPO / "tests" / "probe" / "test_handoff_import.py").read_text()


def test_the_keys_it_promises_are_in_the_report() -> None:
    text = README.split("## status and report as JSON")[1].split("\n## ")[0]
    promised, summary = text.split("is the same object with `summary`")
    told = report_of(fold_all(beginning()), 1002.0)
    listed = re.sub(r"\([^)]*\)", "", promised.split("rely on:")[1].split("`cockpit report")[0])
    assert set(re.findall(r"`(\w+)`", listed)) <= set(told)
    state, activity = (
        {word.strip() for word in promised.split(f"`{key}` (")[1].split(")")[0].split(",")}
        for key in ("state", "activity")
    )
    assert not state & activity and "running" in state
    # what has no run, and what only the corner says for some seconds, is no value
    assert (state - {"running"}) | activity == set(BADGES) - {"idle", "rolled_back"}
    assert set(re.findall(r"`(\w+)`", summary)) <= set(told["summary"])


def test_what_can_go_wrong_is_the_table_that_the_tests_are_named_in() -> None:
    assert table() in README, "print it with: python tests/support/wrong.py"
    struck = [name for row in ROWS for name in row.faults]
    kernel = [fault.words if fault.name == "none" else fault.name for fault in KERNEL_FAULTS]
    assert sorted(struck) == sorted([*(fault.name for fault in FAULTS), *kernel]), "each fault stands in one row"
    for row in ROWS:
        assert row.faults or row.tests, row.words
        for test in row.tests:
            path, _, name = test.partition("::")
            assert re.search(rf"^(async )?def {name}\(", (REPO / path).read_text(), re.MULTILINE), test
    assert len(ROWS) <= 36


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (REPO / target).is_file(), target


@pytest.mark.parametrize("line", ["cockpit help", "cockpit ls", "cockpit run --headless --json"])
def test_what_needs_no_training_is_tried(line: str, state_dir: Path) -> None:
    assert line in README
    words = shlex.split(line)[1:]
    expected = 125 if words[0] == "run" else 0
    done = subprocess.run(
        [sys.executable, "-m", "cockpit.cli.main", *words],
        cwd=REPO,
        env=clean_env({"XDG_STATE_HOME": str(state_dir), "PYTHONPATH": str(REPO)}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == expected, done.stderr
