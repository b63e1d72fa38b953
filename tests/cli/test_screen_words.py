"""The options of the screen: understood by every verb that shows one, and a wrong one starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.cli import attach, demo, run
from cockpit.cli.main import main
from cockpit.cli.screen_words import Look, look_of
from cockpit.cli.words import split
from cockpit.model.errors import UsageError
from cockpit.tui.glyphs import SETS


@pytest.mark.parametrize("verb", [run, attach, demo], ids=lambda verb: verb.__name__.rpartition(".")[2])
def test_every_verb_that_shows_a_screen_takes_them(verb: object) -> None:
    options = verb.OPTIONS  # type: ignore[attr-defined]
    assert look_of(split([], options)) == Look(None, False)
    for name in SETS:
        assert look_of(split(["--glyphs", name, "--readonly"], options)) == Look(name, True)


def test_characters_that_are_not_known_are_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="braille, block, ascii"):
        look_of(split(["--glyphs=emoji"], attach.OPTIONS))
    assert main(["run", "--glyphs", "emoji", "--state-dir", str(tmp_path), "train.py"]) == 125
    assert "--glyphs cannot be 'emoji'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
