"""Options, verbs and schedules as typed: what is understood, and the one sentence where nothing is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cockpit.cli import attach
from cockpit.cli.help import front, page
from cockpit.cli.launch_words import OPTIONS, moment, plan_of, schedule
from cockpit.cli.main import main
from cockpit.cli.run import _differences as differences_told
from cockpit.cli.verbs import BY_NAME, VERBS, verb_named
from cockpit.cli.words import Option, split
from cockpit.config.assign import Wishes
from cockpit.engine.start import Scheduled
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import KNOBS

REPO = Path(__file__).resolve().parents[2]


def test_everything_after_the_script_belongs_to_the_script() -> None:
    words = split(["--set", "num_workers=2", "train.py", "--set", "x", "--", "--json"], OPTIONS, script=True)
    assert words.rest == ["train.py", "--set", "x", "--", "--json"] and not words.command
    assert words.all("--set") == [("num_workers=2",)] and not words.has("--json")


def test_everything_after_two_dashes_is_a_command() -> None:
    words = split(["--json", "--", "python", "-m", "pkg", "--json"], OPTIONS, script=True)
    assert words.rest == ["python", "-m", "pkg", "--json"] and words.command and words.has("--json")


def test_options_and_words_may_be_mixed_where_no_script_is_meant() -> None:
    options = (Option("--now", ""), Option("--state-dir", "", ("DIR",)))
    words = split(["a", "--now", "b=1", "--state-dir=/x=y"], options)
    assert words.rest == ["a", "b=1"] and words.has("--now") and words.one("--state-dir") == "/x=y"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--hedless"], "did you mean --headless"),
        (["--name"], "--name needs NAME"),
        (["--at", "epoch:1"], "--at needs WHEN KNOB=VALUE"),
        (["--name", "--", "x"], "--name needs NAME"),
        (["--json=yes"], "--json takes no value"),
        (["--name", "a", "--name", "b"], "--name was given twice"),
        (["-m", "pkg"], "unknown option -m"),
    ],
)
def test_a_wrong_option_is_one_sentence(given: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        split(given, OPTIONS, script=True)


@settings(deadline=None)
@given(
    some.lists(some.sampled_from(["--set", "--at", "--", "-", "--json", "x", "", "a=b", "--name=", "-f", "--=3", "é"]))
)
def test_any_words_are_cut_or_answered_in_one_sentence(typed: list[str]) -> None:
    try:
        words = split(typed, OPTIONS)
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert all(word in typed for word in words.rest)


def test_a_schedule_counts_from_nought_and_joins_what_is_meant_for_one_moment() -> None:
    pairs = [
        ("epoch:0", "num_workers=2"),
        ("step:100", "pin_memory=on"),
        ("epoch:0", "prefetch_factor=4"),
        ("time:2.5", "train.py:52:num_workers=1"),
    ]
    assert schedule(pairs) == (
        Scheduled("epoch", 0, {"num_workers": 2, "prefetch_factor": 4}),
        Scheduled("step", 100, {"pin_memory": True}),
        Scheduled("time", 2.5, {"num_workers": 1}, "train.py:52"),
    )


@pytest.mark.parametrize(
    "text",
    ["epoch", "epoch:", "epoch:-1", "epoch:x", "step:1.5", "time:nan", "time:-1", "at:3", ":", "epoch:٣"],
)
def test_a_moment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--at"):
        moment(text)


def test_words_on_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("schema = 1\n[setup]\nnum_workers = 6\nin_order = false\nnum_worker = 1\n")
    words = split(
        ["--config", str(file), "--set", "num_workers=2", "--set", "a.py:9:pin_memory=on", "--grace", "7"],
        OPTIONS,
    )
    plan = plan_of(words, ["train.py", "--lr", "1"], command=False)
    assert plan.spec.setup == {"num_workers": 2, "in_order": False}
    assert plan.spec.loaders == {"a.py:9": {"pin_memory": True}}
    assert (plan.spec.words, plan.spec.is_script, plan.spec.grace_s) == (("train.py", "--lr", "1"), True, 7.0)
    assert len(plan.notes) == 1 and "num_worker" in plan.notes[0]


def test_a_plan_from_nothing_changes_nothing() -> None:
    spec = plan_of(split([], OPTIONS), ["x.py"], command=False).spec
    assert (dict(spec.setup), dict(spec.loaders), tuple(spec.at)) == (Wishes().knobs, Wishes().loaders, ())


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_a_file_options_and_a_page(verb, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    lines = page(verb)
    assert lines[0].startswith(f"cockpit {verb.name}") and verb.help in lines[1]
    assert all(len(line) <= 120 for line in lines)
    assert main([verb.name, "--help"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_the_front_page_names_every_verb_and_every_knob() -> None:
    text = "\n".join(front())
    assert all(verb.name in text and verb.help in text for verb in VERBS)
    assert all(knob.name in text for knob in KNOBS)


@pytest.mark.parametrize(
    ("typed", "words"), [("statu", "'status'"), ("train.py", "cockpit run train.py"), ("zzz", "cockpit help")]
)
def test_an_unknown_verb_is_answered_with_the_nearest(
    typed: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CockpitError, match=words):
        verb_named(typed)
    assert main([typed]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("over", [False, True])
def test_looking_at_a_run_is_no_failure_however_the_training_ends(over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("has_terminal", True), ("find", None), ("revive_to_show", None), ("show", 7)):
        monkeypatch.setattr(attach, name, lambda *_, value=value: value)
    monkeypatch.setattr(attach, "has_ended", lambda _: over)
    assert attach.call(verb_named("attach"), split([], attach.OPTIONS)) == 0


def test_version_and_help_from_any_side(capsys: pytest.CaptureFixture[str]) -> None:
    import cockpit

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cockpit {cockpit.__version__}\n"
    pages = set()
    for words in ([], ["help"], ["--help"], ["-h"]):
        assert main(words) == 0
        pages.add(capsys.readouterr().out)
    assert len(pages) == 1
    assert main(["help", "statos"]) == 2


def test_wrong_options_are_125_where_a_training_is_started_and_2_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [main([name, "--nonsense"]) for name in ("run", "demo", "status", "ls", "set")] == [
        125,
        125,
        2,
        2,
        2,
    ]
    assert capsys.readouterr().err.count("\n") == 5


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_no_verb_brings_torch_or_textual_or_the_like_with_it(verb: str) -> None:
    code = (
        f"import sys, importlib; from cockpit.cli.main import main; main(['help']); "
        f"importlib.import_module('cockpit.cli.{BY_NAME[verb].module}'); "
        "heavy = {'torch', 'textual', 'rich', 'numpy', 'psutil', 'pynvml', 'PIL'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


def test_a_variable_of_the_setup_that_the_shell_has_otherwise_is_told_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('schema = 1\n[environment]\nMINE = "7"\nSAME = "1"\nNEW = "2"\nGONE = false\n')
    for name, value in {"MINE": "s3cret", "SAME": "1", "GONE": "x"}.items():
        monkeypatch.setenv(name, value)
    words = split(["--config", str(file), "train.py"], OPTIONS, script=True)
    plan = plan_of(words, words.rest, command=False)
    assert plan.spec.variables == {"MINE": "7", "SAME": "1", "NEW": "2", "GONE": None}
    notes = differences_told(plan)
    assert "MINE, GONE: as the setup has it, not as this shell" in notes and "s3cret" not in str(notes)
