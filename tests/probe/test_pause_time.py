"""A paused training under a clock of ours: where a pause takes hold, and that its time is nobody's."""

from __future__ import annotations

import signal
import sys
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from watched import MS, Rows, Slow, SlowSGD, Watched, loader_of, train_step

from cockpit.probe import hold as holding

LONG_MS = 3_600_000.0


class Pauses:
    """Asks for a pause where a test says so; each lasts an hour, and then somebody says that it goes on."""

    def __init__(self, it: Watched) -> None:
        self.it, self.naps, self.count = it, 0, 0
        self.doing: list[str] = []
        it.probe.hold.nap = self.nap

    def nap(self, _: float) -> None:
        self.naps += 1
        self.it.spend(LONG_MS / 2)
        self.doing.append(self.it.recorder.doing)
        self.it.beat()
        if self.naps % 2 == 0:
            self.it.probe.hold.receive({"m": "resume", "id": "any"})

    def ask(self) -> None:
        self.count += 1
        self.it.probe.hold.receive({"m": "pause", "id": f"p{self.count}"})

    @property
    def said(self) -> list[tuple[str, int]]:
        return [(m["state"], m["step"]) for m in self.it.of("pause")]


@pytest.fixture
def pauses(it):
    return Pauses(it)


def parts(it):
    model = Slow(it)
    return model, SlowSGD(it, model.parameters(), lr=0.1)


def nothing_of_it(it):
    """No step, no tick, no block and no epoch holds a pause."""
    it.beat()
    assert all(row[name] < 100 for row in it.steps() for name in row if name not in ("samples", "step")), it.steps()
    assert all(m["wall_ns"] < 20_000 * MS for m in it.heard if m["m"] in ("tick", "block", "epoch"))
    assert all(0 <= m["start_ns"] < 20_000 * MS for m in it.heard if m["m"] in ("tick", "block", "epoch"))


def test_between_two_steps_of_a_loader(it, pauses):
    model, optimizer = parts(it)
    for _ in range(2):
        for at, batch in enumerate(loader_of(it)):
            train_step(model, optimizer, batch)
            if at == 2:
                pauses.ask()
                assert pauses.naps % 2 == 0, "not in the middle of a step"
    assert pauses.said == [("asked", 2), ("paused", 3), ("over", 3), ("asked", 8), ("paused", 9), ("over", 9)]
    assert pauses.doing == ["paused"] * 4 and it.recorder.doing != "paused"
    ticks = it.of("tick", doing="paused")
    assert ticks and not any(m["wall_ns"] or m["steps"] for m in ticks[1:2])
    nothing_of_it(it)
    same = {name for row in it.steps() for name, value in row.items() if name == "lived" and abs(value - 17.0) > 0.5}
    assert not same, "each step is as long as without a pause"


def test_no_block_spans_a_pause(it, pauses):
    model, optimizer = parts(it)
    for at, batch in enumerate(loader_of(it, 4 * 200)):
        train_step(model, optimizer, batch)
        if at == 45:
            pauses.ask()
        it.beat()
    blocks = it.of("block")
    spans = [range(m["step"] - m["steps"] + 1, m["step"] + 1) for m in blocks]
    assert len(blocks) > 4 and not any(45 in span and 46 in span for span in spans), spans
    nothing_of_it(it)


def test_asked_in_an_epochs_last_step(it, pauses):
    """It takes hold as the loader says that there are no more: not after the validation that follows."""
    model, optimizer = parts(it)
    seen = []
    for _ in range(2):
        for at, batch in enumerate(loader_of(it)):
            train_step(model, optimizer, batch)
            if at == 5:
                pauses.ask()
        seen.append(pauses.naps)
    assert seen == [2, 4]
    walls = [m["wall_ns"] for m in it.of("epoch")]
    assert len(walls) == 2 and all(90 * MS < wall < 120 * MS for wall in walls)
    nothing_of_it(it)


def test_a_loop_that_leaves_its_loader_early_pauses_at_the_next_loader(it, pauses):
    model, optimizer = parts(it)
    for _ in range(3):
        for at, batch in enumerate(loader_of(it)):
            train_step(model, optimizer, batch)
            if at == 3:
                pauses.ask()
                break
    assert [word for word, _ in pauses.said].count("paused") == 2 and pauses.naps == 4
    assert len(walls := [m["wall_ns"] for m in it.of("epoch")]) == 3 and all(wall < 100 * MS for wall in walls)
    nothing_of_it(it)


def test_a_fresh_iterator_for_each_step(it, pauses):
    model, optimizer = parts(it)
    loader = loader_of(it)
    for at in range(8):
        train_step(model, optimizer, next(iter(loader)))
        if at == 4:
            pauses.ask()
    assert pauses.said[:2] == [("asked", 4), ("paused", 5)]
    nothing_of_it(it)


def test_in_a_validation_it_waits_for_the_next_training_step_and_says_so(it, pauses):
    model, optimizer = parts(it)
    held_out = DataLoader(Rows(it, 12), batch_size=4)
    for epoch in range(2):
        for batch in loader_of(it):
            train_step(model, optimizer, batch)
        model.eval()
        with torch.no_grad():
            for at, batch in enumerate(held_out):
                model(batch)
                if epoch == 0 and at == 1:
                    pauses.ask()
                assert not pauses.naps or epoch
        model.train()
    assert pauses.said == [("asked", 6), ("paused", 7), ("over", 7)]
    (asked,) = it.of("pause", state="asked")
    assert asked["reason"] == holding.BETWEEN
    nothing_of_it(it)


@pytest.mark.parametrize("seen", [True, False])
def test_a_loop_without_a_loader(it, pauses, seen):
    """Steps end at the next forward; where no module is seen, at the next backward."""
    model, optimizer = parts(it)
    weight = nn.Parameter(torch.ones(2))
    own = SlowSGD(it, [weight], lr=0.1)
    for at in range(12):
        if seen:
            train_step(model, optimizer, torch.ones(4, 2))
        else:
            own.zero_grad()
            it.spend(10)
            (weight * weight).sum().backward()
            own.step()
        if at == 6:
            pauses.ask()
    assert [word for word, _ in pauses.said] == ["asked", "paused", "over"] and pauses.naps == 2
    nothing_of_it(it)


def test_a_change_lands_when_it_goes_on_and_a_queued_one_waits_for_its_boundary(it, pauses):
    model, optimizer = parts(it)
    held = []

    def asking(seconds):
        if not pauses.naps:
            it.ask("now", now=True, num_workers=0, pin_memory=False, prefetch_factor="script")
            it.ask("later", in_order=False)
        held.append([m["state"] for m in it.of("change")])
        pauses.nap(seconds)

    it.probe.hold.nap = asking
    for _ in range(2):
        for at, batch in enumerate(loader_of(it)):
            train_step(model, optimizer, batch)
            if at == 2 and not pauses.count:
                pauses.ask()
    assert not any("applying" in states for states in held), "nothing lands while it is paused"
    assert not it.probe.asks.waiting
    nothing_of_it(it)


def test_refused_before_the_first_step_with_several_ranks_and_where_a_handler_would_not_be_noticed(it, monkeypatch):
    hold = it.probe.hold
    hold.receive({"m": "pause", "id": "a"})
    assert it.of("pause", id="a") == [hold.last] and hold.last["reason"] == holding.NO_STEP
    model, optimizer = parts(it)
    hold.nap = lambda _: pytest.fail("it was held")
    for at, batch in enumerate(loader_of(it)):
        train_step(model, optimizer, batch)
        if at == 2:
            monkeypatch.setattr(hold, "_world", lambda: 2)
            hold.receive({"m": "pause", "id": "b"})
            assert hold.last["reason"] == holding.SEVERAL and not hold.asked
            monkeypatch.setattr(hold, "_world", lambda: 1)
            monkeypatch.setattr(holding, "_in_main_thread", lambda: False)
            monkeypatch.setattr(holding, "own_handlers", lambda: {test_refused_before.__code__: "SIGTERM"})
            hold.receive({"m": "pause", "id": "c"})
    assert hold.last["state"] == "refused" and "its own handler of SIGTERM" in hold.last["reason"]


def test_refused_before():
    """Stands in for a handler of a script's."""


def test_withdrawn_before_it_takes_hold_and_known_ids_are_answered_once_more(it, pauses):
    model, optimizer = parts(it)
    hold = it.probe.hold
    for at, batch in enumerate(loader_of(it)):
        train_step(model, optimizer, batch)
        if at == 2:
            hold.receive({"m": "resume", "id": "x"})  # nothing to go on with
            pauses.ask()
            hold.receive({"m": "resume", "id": "p1"})
            hold.receive({"m": "pause", "id": "p1"})
    assert pauses.said == [("asked", 2), ("over", 2), ("over", 2)] and not pauses.naps
    assert it.probe.greeting()[-1]["state"] == "over", "an engine that is new hears the last word"


def test_nobody_is_held_whom_nobody_could_release(it, pauses):
    model, optimizer = parts(it)
    hold, left = it.probe.hold, []

    def alone(_):
        left.append(1)
        hold.beat(len(left) <= 3, 4.0)  # lost after the third nap
        assert len(left) < 10

    for at, batch in enumerate(loader_of(it)):
        train_step(model, optimizer, batch)
        if at == 1:
            hold.nap = alone
            pauses.ask()
    assert len(left) == 6 and hold.last["state"] == "over" and hold.last["reason"] == holding.ALONE


def test_nor_where_no_part_of_ours_would_hear_it(it, pauses):
    model, optimizer = parts(it)
    hold, naps = it.probe.hold, []
    hold.nap = naps.append
    for at, batch in enumerate(loader_of(it)):
        train_step(model, optimizer, batch)
        if at == 1:
            pauses.ask()
    assert hold.last["reason"] == holding.DEAF and 150 < len(naps) < 250


def test_nor_where_the_probes_thread_cannot_be_started(it, pauses):
    model, optimizer = parts(it)
    hold = it.probe.hold

    def no_more():
        raise RuntimeError("can't start new thread")

    hold._keep_beating = no_more
    for at, batch in enumerate(loader_of(it)):
        train_step(model, optimizer, batch)
        if at == 1:
            pauses.ask()
    assert it.recorder.steps == 6 and not hold.holding and it.recorder.held_since is None
    assert "new thread" in it.probe.guard.reasons.pop("pause") and hold.last["state"] == "over"


class Told(Exception):
    """What a script's handler may raise."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Told, SystemExit])
def test_what_the_scripts_handler_raises_reaches_the_script(it, pauses, kind):
    model, optimizer = parts(it)
    was = signal.getsignal(signal.SIGUSR1)

    class Handler:
        def __call__(self, *_):
            raise kind("enough")

    handler = Handler()
    it.probe.hold.nap = lambda _: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(kind, match="enough"):
            for batch in loader_of(it):
                train_step(model, optimizer, batch)
                if it.recorder.steps == 1:
                    pauses.ask()
    finally:
        signal.signal(signal.SIGUSR1, was)
    assert it.probe.hold.last["reason"] == holding.INTERRUPTED % kind.__name__ and not it.probe.guard.reasons
    before = it.recorder.steps
    for batch in loader_of(it):  # the script may go on, and is seen as before
        train_step(model, optimizer, batch)
    assert it.recorder.steps >= before + 6 and sys.getprofile() is None
    nothing_of_it(it)


@pytest.mark.parametrize("form", ["function", "method", "partial", "object"])
def test_a_handler_that_only_notes_its_signal_ends_the_pause(it, pauses, form):
    import functools

    class Notes:
        def __init__(self):
            self.noted = []

        def note(self, *_):
            self.noted.append(sys.getprofile())

        def __call__(self, *_):
            self.note()

    notes = Notes()
    handler = {
        "function": lambda *_: notes.note(), "method": notes.note,
        "partial": functools.partial(lambda what, *_: what.note(), notes), "object": notes,
    }[form]  # fmt: skip
    was = signal.signal(signal.SIGUSR1, handler)
    model, optimizer = parts(it)
    it.probe.hold.nap = lambda _: signal.raise_signal(signal.SIGUSR1)
    try:
        for at, batch in enumerate(loader_of(it)):
            train_step(model, optimizer, batch)
            if at == 1:
                pauses.ask()
    finally:
        signal.signal(signal.SIGUSR1, was)
    assert notes.noted == [None], "once, and nobody looks on while it does its work"
    assert it.probe.hold.last["reason"] == holding.SIGNALLED % "SIGUSR1" and sys.getprofile() is None


def test_a_training_beside_its_main_thread_is_held_there_and_the_main_thread_goes_on(it, pauses, monkeypatch):
    monkeypatch.setattr(holding, "own_handlers", dict)
    ended = threading.Event()

    class Main:
        @staticmethod
        def is_alive():
            return not ended.is_set()

        ident = threading.main_thread().ident

    hold, naps = it.probe.hold, []

    def nap(_):
        naps.append(threading.get_ident())
        if len(naps) == 3:
            ended.set()  # as after Ctrl-C: the interpreter waits for this thread
        assert len(naps) < 10

    def train():
        model, optimizer = parts(it)
        for at, batch in enumerate(loader_of(it)):
            train_step(model, optimizer, batch)
            if at == 1:
                monkeypatch.setattr(holding.threading, "main_thread", lambda: Main)
                pauses.ask()

    hold.nap = nap
    thread = threading.Thread(target=train)
    thread.start()
    thread.join(60)
    assert len(naps) == 3 and hold.last["reason"] == holding.DESERTED


def test_a_forked_child_is_not_held_and_its_parent_hears_on(it, pauses):
    hold, started = it.probe.hold, []
    hold._keep_beating = lambda: started.append(1)
    hold.forked()
    assert not started
    hold.holding = hold.asked = it.recorder.hold = True
    hold.forked()
    assert started == [1], "the probe's thread was stopped for the fork"
    it.probe.in_child()
    assert not (hold.holding or hold.asked or it.recorder.hold or hold.last)


def test_a_change_of_the_kernels_on_trial_keeps_its_trial(it, pauses):
    model, optimizer = parts(it)
    for _ in range(3):
        for at, batch in enumerate(loader_of(it, 4 * 8)):
            train_step(model, optimizer, batch)
            if at == 3 and not it.probe.asks.by_id:
                it.ask("bf16", now=True, autocast="bf16")
            if at == 5 and not pauses.count:
                trial = it.recorder.trial
                began = trial._began_ns
                pauses.ask()
            it.beat()
    assert it.recorder.trial is trial and trial._began_ns - began >= LONG_MS * MS
    assert [m["state"] for m in it.of("change", id="bf16")][-1] == "settling"
    nothing_of_it(it)
