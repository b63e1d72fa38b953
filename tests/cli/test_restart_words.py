"""What ``cockpit restart`` answers: what goes along to the new process, and that nothing else does."""

from __future__ import annotations

from cockpit.cli.restart import words_of


def test_what_goes_along_is_said_and_that_all_else_begins_anew() -> None:
    asked = words_of({"id": "r1", "note": None, "names": ["model", "optimizer"]})
    assert asked.endswith("boundary: model, optimizer, random states go along; what was not given begins anew")
    assert words_of({"id": "r1", "note": None, "names": []}).endswith("at the next epoch boundary")
    begun = words_of({"id": "r1", "note": "goes on from the hand-off", "begun": True})
    assert begun == "a new process goes on from the hand-off"
