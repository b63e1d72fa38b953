"""What is saved of a run: what differs from its script, for all training loaders or for one by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.events import Story, beginning, knob, loader

from cockpit.cli.progress import Progress
from cockpit.config.setup import read_setup
from cockpit.history.fold import fold_all
from cockpit.history.knobs import knob_rows, not_applied, tuned_loaders, tuned_setup
from cockpit.history.report import setup_of, text_of
from cockpit.history.save import save
from cockpit.history.status import found_of, status_of
from cockpit.model.events import KnobReport, LoadersSeen, RunStarted, TrainingEnded


def test_loaders_that_are_tuned_differently_are_each_kept_by_name() -> None:
    story = Story()
    seen = (
        loader("a.py:1", knobs=(knob("num_workers", 0, 4), knob("in_order", True, False))),
        loader("a.py:2", knobs=(knob("num_workers", 2), knob("in_order", True, False))),
        loader("a.py:3", "other", knobs=(knob("num_workers", 0, 1), knob("in_order", True))),
    )
    state = fold_all([*beginning(), LoadersSeen(1001.0, seen)])
    assert tuned_setup(state) == {"in_order": False}
    assert tuned_loaders(state) == {"a.py:1": {"num_workers": 4}, "a.py:3": {"num_workers": 1}}
    # set from the start for all, and not put back yet: nobody chose it for the validation loader
    begun = fold_all([*beginning(setup={"num_workers": 1}), LoadersSeen(1001.0, seen)])
    assert tuned_loaders(begun) == {"a.py:1": {"num_workers": 4}}
    named = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 1}), begun)
    assert tuned_loaders(named) == {"a.py:1": {"num_workers": 4}}, "a change for all training loaders names no other"


def test_two_scripts_and_one_value_is_one_bare_knob() -> None:
    seen = (loader("a.py:1", knobs=(knob("num_workers", 0, 4),)), loader("a.py:2", knobs=(knob("num_workers", 4),)))
    state = fold_all([*beginning(), LoadersSeen(1001.0, seen)])
    assert (tuned_setup(state), tuned_loaders(state)) == ({"num_workers": 4}, {})


def test_what_the_script_has_no_use_for_is_kept_only_where_it_was_chosen() -> None:
    """Without workers a script has no prefetch; with them torch's default comes by itself, a chosen value does not."""
    story = Story()
    seen = loader(knobs=(knob("num_workers", 0, 4), KnobReport("prefetch_factor", None, 2)))
    state = fold_all([*beginning(), LoadersSeen(1001.0, (seen,))])
    assert tuned_setup(state) == {"num_workers": 4}
    chosen = loader(knobs=(knob("num_workers", 0, 4), KnobReport("prefetch_factor", None, 8)))
    landed = story.landed("c1", {"prefetch_factor": 2}, {"prefetch_factor": 8})
    state = fold_all([*landed, LoadersSeen(1002.0, (chosen,))], state)
    assert tuned_setup(state) == {"num_workers": 4, "prefetch_factor": 8}
    begun = fold_all([*beginning(setup={"prefetch_factor": 8}), LoadersSeen(1001.0, (chosen,))])
    assert tuned_setup(begun) == {"num_workers": 4, "prefetch_factor": 8}


def test_what_was_asked_from_the_start_and_cannot_be_is_told_with_the_reason() -> None:
    """As when a saved setup is loaded on a machine without a GPU, or the script has changed since."""
    story = Story()
    pinned = {"pin_memory": True, "num_workers": 2}
    named = {"a.py:1": {"prefetch_factor": 4, "num_workers": 2}, "a.py:9": {"num_workers": 2}}
    begun = [
        replace(event, loaders=named) if isinstance(event, RunStarted) else event for event in beginning(setup=pinned)
    ]
    waiting = loader("a.py:1", knobs=(KnobReport("num_workers", 0, None), KnobReport("prefetch_factor", None, None)))
    state = fold_all([*begun, LoadersSeen(1001.0, (waiting,))])
    assert not_applied(state) == {}, "the first batch decides"
    there = (
        knob("num_workers", 0, 2),
        knob("pin_memory", False, can=False, reason="no accelerator found"),
        KnobReport("prefetch_factor", None, 2, reason="not today"),
    )
    state = fold_all([LoadersSeen(1002.0, (loader("a.py:1", knobs=there),))], state)
    told = {"pin_memory on": "no accelerator found", "a.py:1: prefetch_factor 4": "not today"}
    assert not_applied(state) == told
    ended = fold_all([TrainingEnded(1009.0, 0)], state)
    assert list(not_applied(ended)) == [*told, "a.py:9: num_workers"]
    assert any("a.py:9: num_workers" in line and "no such loader" in line for line in text_of(ended, 1010.0))
    lines = [line for state in (state, ended) for line in Progress().said(state, 1010.0) if "not applied" in line]
    assert len(lines) == 2 + 3
    changed = fold_all(story.landed("c1", {"pin_memory": False}, {"pin_memory": True}), state)
    assert "pin_memory on" not in not_applied(changed), "its own line in the ledger says more"


def test_the_file_and_the_report_name_the_same(tmp_path: Path) -> None:
    seen = (loader("a.py:1", knobs=(knob("num_workers", 0, 4),)), loader("a.py:2"))
    state = fold_all([*beginning(), LoadersSeen(1001.0, seen)])
    assert save(state, tmp_path / "it.toml") == ["a.py:1:num_workers=4"]
    assert read_setup(tmp_path / "it.toml").wishes.loaders == {"a.py:1": {"num_workers": 4}}
    assert setup_of(state) == {"a.py:1:num_workers": 4}


def test_knobs_of_the_whole_training_have_their_rows_without_any_loader() -> None:
    kernels = (knob("threads", 2, 1), knob("autocast", "off"), KnobReport("compile", "off", None))
    state = fold_all([*beginning(), LoadersSeen(1001.0, (), kernels)])
    rows = {row.name: row for row in knob_rows(state)}
    assert (rows["threads"].in_force, rows["threads"].can_now) == (1, True)
    assert (rows["compile"].in_force, rows["compile"].mixed) == (None, False)
    assert tuned_setup(state) == {"threads": 1}
    assert status_of(state, 1002.0)["knobs"]["autocast"]["in_force"] == "off"


def test_journals_that_told_them_with_each_loader_still_read() -> None:
    told = (knob("num_workers", 0), knob("threads", 2, 1))
    state = fold_all([*beginning(), LoadersSeen(1001.0, (loader("a.py:1", knobs=told), loader("a.py:2", knobs=told)))])
    assert [row.in_force for row in knob_rows(state) if row.name == "threads"] == [1]
    assert (tuned_setup(state), tuned_loaders(state)) == ({"threads": 1}, {})


def test_what_was_found_of_a_change_stands_beside_what_was_asked() -> None:
    story = Story()
    kernels = (KnobReport("matmul", "highest", "high", note="no effect: this CPU"),)
    seen = (loader("a.py:1"), loader("a.py:2", "other", knobs=(knob("num_workers", 0, 1),)))
    state = fold_all([*beginning(), LoadersSeen(1001.0, seen, kernels)])
    state = fold_all([story.asked("c1", {"matmul": "high"})], state)
    state = fold_all([story.asked("c2", {"num_workers": 3}, loader="a.py:2")], state)
    whole, single = (found_of(state, entry) for entry in state.ledger)
    assert whole == {"matmul": {"asked": "high", "in_force": "high", "reason": None, "note": "no effect: this CPU"}}
    assert single["num_workers"]["in_force"] == 1, "of the loader that was named"


@pytest.mark.parametrize(
    ("report", "state", "reason"),
    [
        (None, "queued", None),
        (KnobReport("autocast", "off", None), "queued", None),
        (KnobReport("autocast", "off", "bf16"), "kept", None),
        (KnobReport("autocast", "off", "off", reason="no such GPU"), "refused", "no such GPU"),
        (KnobReport("autocast", "off", "off", note="the script decides"), "refused", "the script decides"),
        (KnobReport("autocast", None, None, can=False, reason="no module"), "refused", "no module"),
    ],
)
def test_a_kernel_knob_set_from_the_start_is_as_it_was_found(
    report: KnobReport | None, state: str, reason: str | None
) -> None:
    kernels = (report,) if report else ()
    run = fold_all([*beginning(setup={"autocast": "bf16"}), LoadersSeen(1001.0, (), kernels)])
    row = next(row for row in knob_rows(run) if row.name == "autocast")
    assert (row.asked, row.state, row.reason) == ("bf16", state, reason)
    assert not_applied(run) == ({"autocast bf16": reason} if state == "refused" else {})
    over = fold_all([TrainingEnded(1009.0, 0)], run)
    if state == "queued":
        assert "no training step was seen" in not_applied(over)["autocast bf16"]
        assert any("autocast bf16, asked for from the start" in line for line in text_of(over, 1010.0))


def test_what_the_machine_has_changed_by_itself_is_not_saved() -> None:
    """A script that pins, on a machine without an accelerator: the file would turn its pinning off elsewhere."""
    story = Story()
    off = knob("pin_memory", True, False, can=False, can_now=False, reason="no accelerator found")
    seen = (
        loader("a.py:1", knobs=(knob("num_workers", 0, 2), off)),
        loader("a.py:2", "other", knobs=(knob("num_workers", 0), off)),
    )
    state = fold_all([*beginning(), LoadersSeen(1001.0, seen)])
    state = fold_all(story.landed("c1", {"num_workers": 0}, {"num_workers": 2}), state)
    assert (tuned_setup(state), tuned_loaders(state)) == ({"num_workers": 2}, {})
    chosen = fold_all(story.landed("c2", {"pin_memory": True}, {"pin_memory": False}), state)
    assert tuned_setup(chosen) == {"num_workers": 2, "pin_memory": False}
