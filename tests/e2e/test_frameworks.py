"""Other people's loops, unmodified: Accelerate, Lightning, Transformers. Untouched they do just what they do bare.

Each training warms up with a learning rate of 0 in its first epoch, where the kernel knobs are turned on and off
again; loaders are changed after that. So losses may differ in that window alone, and the end must be the bare run's
to the bit: weights, generators, samples. The matrix of their own options is the long tier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.outcome import TRAINERS, Outcome, difference
from support.pool import Job, Pool

LOSS = re.compile(r"loss (\S+)")
CLOSE = 0.03
"""How far a loss in bfloat16 may lie from the same in float32."""


@dataclass(frozen=True)
class Loop:
    """``train`` and ``others`` are pieces of the lines that make the loaders (or begin the framework's own making).

    ``steps`` in all, in three epochs; ``batches`` that make one step; ``on`` and ``off``: the steps from which the
    kernels are others, and as before. ``moves``: when, which loader knob, from what to what, and the step it lands at.
    """

    trainer: str
    framework: str
    train: str
    others: tuple[str, ...]
    steps: int
    batches: int = 1
    samples: tuple[int, ...] = (96, 96, 96)
    own_workers: int = 0
    on: int = 2
    off: int = 4
    moves: tuple[tuple[str, str, int, int, int], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        return f"{self.framework} {self.name}".strip()

    @property
    def per_epoch(self) -> int:
        """Steps of the last epoch; a script that skips batches has fewer in another one."""
        return -(-self.steps // 3)

    @property
    def all_moves(self) -> tuple[tuple[str, str, int, int, int], ...]:
        """In the middle of an epoch, at a boundary, and in the middle again."""
        first, last = self.per_epoch, self.steps - self.per_epoch
        return self.moves or (
            (f"step:{first + 1}", "num_workers", 0, 2, first + 1),
            ("epoch:2", "num_workers", 2, 1, last),
            (f"step:{last + 1}", "prefetch_factor", 2, 4, last + 1),
        )

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        return (
            (f"step:{self.on}", "autocast=bf16"),
            (f"step:{self.on}", "threads=2"),
            (f"step:{self.off}", "autocast=script"),
            (f"step:{self.off}", "threads=script"),
            ("epoch:1", "batch_size=16"),
            *((moment, f"{knob}={value}") for moment, knob, _, value, _ in self.all_moves),
        )

    def job(self, mode: str) -> Job:
        options = {"bare": None, "untouched": (), "changed": at(*self.changes)}
        options["compiled"] = at((f"step:{self.on}", "compile=default"), (f"step:{self.off}", "compile=script"))
        return Job(self.trainer, options[mode], tuple(self.env.items()), (), self.before)

    def line(self, piece: str) -> str:
        """The loader's id: the file and the line on which ``piece`` stands; ``#2`` after it is a twin's."""
        piece, _, twin = piece.partition("#")
        lines = (TRAINERS / self.trainer).read_text().splitlines()
        place = f"{self.trainer}:{next(n for n, line in enumerate(lines, 1) if piece in line)}"
        return f"{place}#{twin}" if twin else place


def at(*changes: tuple[str, str]) -> tuple[str, ...]:
    return tuple(word for change in changes for word in ("--at", *change))


ACCELERATE = Loop(
    "accel_loop.py", "accelerate", "loader = DataLoader(", ("held_out = DataLoader(",), steps=18, batches=2
)
LIGHTNING = Loop(
    "light_module.py", "lightning", "DataLoader(Numbers(), ", ("DataLoader(Numbers(SAMPLES // 4)",), steps=36
)
FIT = "trainer.train()"
TWINS = (f"{FIT}#2", f"{FIT}#3", f"{FIT}#4")
TRANSFORMERS = Loop("hf_trainer.py", "transformers", FIT, TWINS, steps=18, batches=2)
LOOPS = (ACCELERATE, LIGHTNING, TRANSFORMERS)

ITS_WORKERS_GO_AND_COME = (("step:7", "num_workers", 2, 0, 7), ("epoch:2", "num_workers", 0, 1, 12))
MATRIX = (
    replace(ACCELERATE, name="each batch", steps=36, batches=1, env={"ACCUMULATE": "1"}),
    replace(ACCELERATE, name="dispatch", env={"DISPATCH": "1"}),
    replace(ACCELERATE, name="skip", steps=17, samples=(96, 72, 96), env={"SKIP": "3"}),
    replace(ACCELERATE, name="workers", moves=ITS_WORKERS_GO_AND_COME, env={"WORKERS": "2"}),
    replace(
        ACCELERATE, name="launch", before=("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1")
    ),
    replace(
        LIGHTNING, name="limit", steps=12, batches=2, samples=(56, 56, 56), on=1, off=3,
        env={"ACCUMULATE": "2", "LIMIT": "7"},
    ),
    replace(
        LIGHTNING, name="persistent",
        moves=(("step:14", "num_workers", 2, 0, 14), ("epoch:2", "num_workers", 0, 1, 24)), env={"WORKERS": "2"},
    ),
    replace(TRANSFORMERS, name="each batch", steps=36, batches=1, env={"ACCUMULATE": "1"}),
    replace(TRANSFORMERS, name="uneven", steps=9, batches=5, on=1, off=2, env={"ACCUMULATE": "5"}),
    replace(TRANSFORMERS, name="evaluates inside", env={"EVALUATE": "2"}),
    replace(
        TRANSFORMERS, name="persistent", others=(f"{FIT}#2",), own_workers=2, moves=ITS_WORKERS_GO_AND_COME,
        env={"WORKERS": "2", "PERSISTENT": "1"},
    ),
)  # fmt: skip
EACH = pytest.mark.parametrize(
    "loop", [*LOOPS, *(pytest.param(loop, marks=pytest.mark.long) for loop in MATRIX)], ids=str
)


def needs(*modes: str) -> Any:
    """The runs that a test looks at, so that the pool can begin them before their turn."""

    def mark(test: Any) -> Any:
        test.needs = lambda loop: [loop.job(mode) for mode in modes]
        return test

    return mark


@EACH
@needs("bare", "untouched")
def test_untouched_equals_bare(pool: Pool, loop: Loop) -> None:
    bare, under = pool.result(loop.job("bare")), pool.result(loop.job("untouched"))
    assert bare.status == 0, bare.text[-2000:]
    assert under.status == 0, under.talk
    assert under.output == bare.output, difference(under, bare)


@EACH
@needs("untouched")
def test_untouched_is_told_right(pool: Pool, loop: Loop) -> None:
    report = pool.result(loop.job("untouched")).report
    assert report is not None
    assert (report["state"], report["exit_status"], report["ledger"]) == ("ended", 0, [])
    assert (report["events_dropped"], report["survivors"]) == (0, [])
    check_figures(report, loop)


@EACH
@needs("bare", "changed")
def test_what_was_changed_and_undone_leaves_no_trace(pool: Pool, loop: Loop) -> None:
    bare, changed = pool.result(loop.job("bare")), pool.result(loop.job("changed"))
    assert changed.status == 0, changed.talk + changed.text[-2000:]
    assert changed.final == bare.final
    assert losses_that_differ(changed, bare) == losses_from(bare, loop.on * loop.batches, loop.off * loop.batches)


@EACH
@needs("changed")
def test_each_change_is_told_right(pool: Pool, loop: Loop) -> None:
    report = pool.result(loop.job("changed")).report
    assert report is not None
    check_figures(report, loop)
    on, off, batch_size, *loaders = by_moment(report["ledger"])
    assert on["change"] == {"autocast": ["off", "bf16"], "threads": [1, 2]}
    assert off["change"] == {"autocast": ["bf16", "off"], "threads": [2, 1]}
    assert (on["at_step"], off["at_step"]) == (loop.on, loop.off)
    assert batch_size["state"] == "refused"
    assert loop.framework in batch_size["reason"]
    assert [(entry["change"], entry["at_step"]) for entry in loaders] == [
        ({knob: [before, after]}, step) for _, knob, before, after, step in loop.all_moves
    ]
    assert {entry["state"] for entry in (on, off, *loaders)} <= {"settling", "kept"}
    (trains,) = [loader for loader in report["loaders"] if loader["role"] == "train"]
    assert {knob: trains["knobs"][knob] for _, knob, *_ in loop.all_moves} == {
        knob: after for _, knob, _, after, _ in loop.all_moves
    }
    assert report["knobs"]["autocast"]["in_force"] == "off"
    assert report["knobs"]["threads"]["in_force"] == 1


@pytest.mark.long
@pytest.mark.parametrize("loop", LOOPS, ids=str)
@needs("bare", "compiled")
def test_compiled_and_back(pool: Pool, loop: Loop) -> None:
    """Compiled dropout draws from another stream, which the row says: then no more than the samples are the same."""
    bare, compiled = pool.result(loop.job("bare")), pool.result(loop.job("compiled"))
    assert compiled.status == 0, compiled.talk + compiled.text[-2000:]
    assert bare.final is not None and compiled.final is not None and compiled.report is not None
    exact = bare.final if loop is ACCELERATE else {name: bare.final[name] for name in ("samples", "keys")}
    assert {name: compiled.final[name] for name in exact} == exact
    check_figures(compiled.report, loop)
    assert [(entry["change"], entry["state"] in ("settling", "kept")) for entry in compiled.report["ledger"]] == [
        ({"compile": ["off", "default"]}, True), ({"compile": ["default", "off"]}, True),
    ]  # fmt: skip
    assert compiled.report["compile"]["graphs"] >= 1


def check_figures(report: dict[str, Any], loop: Loop) -> None:
    """Steps, epochs and samples are the training's own, and each loader is there once, by the script's line."""
    assert (report["step"], report["epoch"]) == (loop.steps, 2)
    assert report["optimizer_steps"] == loop.steps
    loaders = {loader["id"]: loader for loader in report["loaders"]}
    assert set(loaders) == {loop.line(piece) for piece in (loop.train, *loop.others)}
    trains = loaders.pop(loop.line(loop.train))
    assert (trains["role"], trains["epochs"]) == ("train", 3)
    assert tuple(trains["samples_by_epoch"]) == loop.samples
    assert trains["steps_per_epoch"] == loop.per_epoch
    assert {loader["role"] for loader in loaders.values()} <= {"other"}
    assert {loader["knobs"]["num_workers"] for loader in loaders.values()} == {loop.own_workers}


def by_moment(ledger: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a change, in the order in which they were due; the refused one may be told before its time."""
    refused = [entry for entry in ledger if entry["state"] == "refused"]
    landed = sorted((entry for entry in ledger if entry not in refused), key=lambda entry: entry["at_step"])
    return [*landed[:2], *refused, *landed[2:]]


def losses_that_differ(ours: Outcome, bare: Outcome) -> list[int]:
    """The lines on which a loss is another, and close; nothing else may differ."""
    found = []
    mine, theirs = ours.text.splitlines(), bare.text.splitlines()
    assert len(mine) == len(theirs), difference(ours, bare)
    for number, (left, right) in enumerate(zip(mine, theirs, strict=True)):
        if left != right:
            assert LOSS.sub("", left) == LOSS.sub("", right), difference(ours, bare)
            assert abs(loss_of(left) - loss_of(right)) < CLOSE
            found.append(number)
    return found


def loss_of(line: str) -> float:
    found = LOSS.search(line)
    assert found is not None, line
    return float(found[1])


def losses_from(bare: Outcome, first: int, until: int) -> list[int]:
    """The lines with a loss from the ``first`` batch that is trained on to before the ``until``-th."""
    losses = [(n, line) for n, line in enumerate(bare.text.splitlines()) if LOSS.search(line)]
    return [n for n, line in losses if not line.startswith("evaluate")][first:until]
