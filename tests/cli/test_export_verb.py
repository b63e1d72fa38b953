"""``cockpit export`` as a shell sees it: lines on stdout, talk on stderr, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.config.assign import Wishes
from cockpit.config.setup import SavedSetup
from cockpit.config.write import write_setup


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A setup as ``cockpit save`` writes it."""
    write_setup(tmp_path / "cockpit.toml", SavedSetup(Wishes({"num_workers": 4, "pin_memory": True})))
    return tmp_path / "cockpit.toml"


def test_a_saved_setup_becomes_a_line_to_paste(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(file), "--to", "python"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("DataLoader(..., num_workers=4, pin_memory=True)  # ") and out.count("\n") == 1
    assert err == ""


def test_what_the_file_holds_and_we_do_not_know_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text() + "num_worker = 2\n")
    assert main(["export", "--to=python", str(file)]) == 0
    assert "unknown knob 'num_worker'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--to", "env"], 1, "no environment variable says num_workers 4, pin_memory on"),
        (["--to", "lightning"], 2, "--to lightning comes with a later version"),
        (["--to", "yaml"], 2, "it takes python, env"),
        ([], 2, "export needs --to python or --to env"),
        (["more.toml", "--to", "env"], 2, "export takes one FILE"),
    ],
)
def test_errors_are_one_sentence(
    file: Path, words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(file), *words]) == code
    out, err = capsys.readouterr()
    assert out == "" and sentence in err and err.count("\n") == 1


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.toml").write_text("schema = = 1")
    (tmp_path / "newer.toml").write_text("schema = 99\n[setup]\n")
    for name, word in (("none.toml", "no such file"), ("broken.toml", "is broken"), ("newer.toml", "newer cockpit")):
        assert main(["export", str(tmp_path / name), "--to", "python"]) == 1
        err = capsys.readouterr().err
        assert word in err and err.count("\n") == 1
