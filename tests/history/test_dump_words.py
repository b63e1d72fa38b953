"""A dump as it is read: who has answered, who has not, and what then stands there instead."""

from __future__ import annotations

from dataclasses import replace

from support.events import beginning

from cockpit.history.fold import fold, fold_all
from cockpit.history.stacks import Dump, dump_of, lines_of
from cockpit.model.stacks import StackPart, StacksSeen

SAID = (StackPart("thread MainThread (7), which trains: loader for 31.0 s", ('File "train.py", line 4 in main',)),)
KERNEL = (StackPart("thread python (8): waiting in futex_wait"),)
ASKED = {"id": "d1", "pids": [7, 8], "kernel": {"8": [{"title": KERNEL[0].title, "lines": []}]}}


def test_only_answers_to_this_question_count() -> None:
    state = fold(fold_all(beginning()), StacksSeen(1002.0, "d0", 7, SAID))
    assert dump_of(ASKED, state).answers == {}
    state = fold(state, StacksSeen(1003.0, "d1", 7, SAID))
    dump = dump_of(ASKED, state)
    assert dump.answered and not dump.whole
    state = fold(state, StacksSeen(1003.1, "d1", 8, ()))
    assert [seen.pid for seen in state.stacks] == [7, 8]
    assert dump_of(ASKED, state).whole


def test_who_has_not_answered_is_told_as_the_kernel_sees_it() -> None:
    dump = Dump((7, 8), {7: SAID}, {8: KERNEL})
    lines = lines_of(dump)
    assert lines[0] == "process 7" and '    File "train.py", line 4 in main' in lines
    assert "process 8: no answer, this is what the kernel sees" in lines
    assert "  thread python (8): waiting in futex_wait" in lines
    assert [process["answered"] for process in dump.plain()["processes"]] == [True, False]


def test_why_nobody_has() -> None:
    assert "does not answer" in replace(Dump(), pids=(7,)).why
    assert "nobody to ask" in Dump(kernel={7: KERNEL}).why
    assert lines_of(Dump(kernel={7: KERNEL}))[0].startswith("process 7: no answer")
