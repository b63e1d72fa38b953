"""Trainings of several processes: each rank does what it does bare, takes its changes, and is told of.

Real launchers, gloo, two ranks. One of each kind in the daily tier; the matrix is long.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.bare import command_of, run_bare
from support.outcome import TRAINERS, Outcome, difference
from support.pool import Job, Pool
from support.under import ask, detached, logs, run_under, status, wait_until

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
CHANGES = ("--at", "step:3", "threads=2", "--at", "step:7", "num_workers=2", "--at", "epoch:2", "num_workers=1")
ONE_HOLDS_A_FILE = (("HOLDS_FILE", "1"), ("PAUSE_S", "0.02"))


def torchrun(*options: str, env: tuple[tuple[str, str], ...] = ()) -> Job:
    return Job("torchrun_ddp.py", options, env, before=TORCHRUN)


BARE = Job("torchrun_ddp.py", None, before=TORCHRUN)


def jobs(*found: Job) -> Any:
    """The runs that a test looks at, so that the pool can begin them ahead; the test has them by these names."""
    return pytest.mark.parametrize("job", found, ids=lambda job: " ".join(job.options or ()) or "untouched")


def waits_for(test: Any) -> Any:
    test.needs = lambda job: [job, BARE] if job.before == TORCHRUN else [job]
    return test


def by_id(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in report["ledger"]}


def report_of(done: Outcome) -> dict[str, Any]:
    assert done.report is not None, done.talk
    assert (done.report["events_dropped"], done.report["survivors"]) == (0, [])
    return done.report


def check_both_ranks(report: dict[str, Any], steps: int = 36) -> None:
    assert [(rank["rank"], rank["step"]) for rank in report["ranks"]] == [(0, steps), (1, steps)]
    assert (report["figures_of"], report["step"]) == ("rank 0 of 2", steps)


@jobs(torchrun(*CHANGES))
@waits_for
def test_ranks_under_torchrun_take_each_change_together(pool: Pool, job: Job) -> None:
    """Mid-epoch and at a boundary, on both: losses, weights, samples and generators of each rank as bare."""
    changed, bare = pool.result(job), pool.result(BARE)
    assert bare.status == changed.status == 0, changed.text[-3000:]
    assert changed.output == bare.output, difference(changed, bare)
    report = report_of(changed)
    check_both_ranks(report)
    (loader,) = report["loaders"]
    # where the ranks differ there is no figure: 1 says that both have it
    assert (loader["role"], loader["samples_by_epoch"], loader["knobs"]["num_workers"]) == ("train", [96, 96, 96], 1)
    threads, swap, boundary = (by_id(report)[change] for change in ("at0", "at1", "at2"))
    assert threads["state"] == "refused" and "several ranks" in threads["reason"]
    assert (swap["at_step"], swap["change"], swap["state"]) == (7, {"num_workers": [0, 2]}, "kept")
    assert (boundary["at_step"], boundary["change"]) == (24, {"num_workers": [2, 1]})
    for name in ("threads", "matmul", "autocast", "compile", "batch_size"):
        row = report["knobs"][name]
        assert not row["can"] and "several ranks" in row["reason"], (name, row)
    assert report["figures_of"] == "rank 0 of 2"


@jobs(Job("ranks.py", ("--at", "step:29", "num_workers=1")))  # late: what was spawned spawns its workers, with torch
@waits_for
def test_ranks_of_a_spawned_training(pool: Pool, job: Job) -> None:
    """Two ranks started by a parent that never trains and is no rank."""
    changed = pool.result(job)
    assert changed.status == 0, changed.text[-3000:]
    report = report_of(changed)
    check_both_ranks(report)
    (loader,) = report["loaders"]
    assert (loader["role"], loader["samples_by_epoch"], loader["knobs"]["num_workers"]) == ("train", [96, 96, 96], 1)
    assert [entry["at_step"] for entry in report["ledger"]] == [29]


PROCESS = ("--at", "step:7", "num_workers=2", "--at", "epoch:2", "threads=2")


@jobs(Job("process.py", PROCESS, args=("fork",)))
@waits_for
def test_a_training_in_a_process_of_its_own_is_the_training(pool: Pool, job: Job) -> None:
    """One process trains: no ranks, and every knob. The parent and the child that only evaluates are neither."""
    changed = pool.result(job)
    assert changed.status == 0, changed.text[-3000:]
    report = report_of(changed)
    (rank,) = report["ranks"]
    assert (rank["step"], report["figures_of"]) == (36, None)
    assert [loader["role"] for loader in report["loaders"]] == ["train"]
    swap, threads = by_id(report)["at0"], by_id(report)["at1"]
    assert (swap["at_step"], swap["change"]) == (7, {"num_workers": [0, 2]})
    assert (threads["change"], threads["reason"]) == ({"threads": [1, 2]}, "measured together with num_workers 0→2")


def test_a_package_run_with_m(tmp_path: Path) -> None:
    words = [*command_of(TRAINERS / "plain.py")[:1], "-m", "tests.trainers.as_package"]
    done = run_under(words, tmp_path, ("--at", "step:7", "num_workers=2"))
    assert done.status == 0, done.text[-3000:]
    report = report_of(done)
    (loader,) = report["loaders"]
    assert (loader["id"].split(":")[0], loader["samples_by_epoch"]) == ("work.py", [96, 96, 96])
    assert [entry["at_step"] for entry in report["ledger"]] == [7]


def test_a_launch_script_that_hides_the_probe_is_told_of(tmp_path: Path) -> None:
    """It sets PYTHONPATH anew: the training runs as ever, and the reason is said with what to write instead."""
    slow = {"PAUSE_S": "0.05", "EPOCHS": "30", "PYTHON": command_of(TRAINERS / "plain.py")[0]}
    with detached(command_of(TRAINERS / "launch.sh"), tmp_path, env=slow):
        told = wait_until(lambda: (found := status(tmp_path))["probe_reason"] and found, "a reason", 60, 0.5)
        assert told["probe"] == "waiting" and "PYTHONPATH" in told["probe_reason"], told["probe_reason"]
        wait_until(lambda: b"epoch 0 step 11" in logs(tmp_path), "the training to go on")


# ---- the long tier ----


@pytest.mark.long
@jobs(torchrun(), torchrun("--set", "num_workers=2"), torchrun("--at", "epoch:1", "num_workers=2"))
@waits_for
def test_ranks_do_what_they_do_bare(pool: Pool, job: Job) -> None:
    done, bare = pool.result(job), pool.result(BARE)
    assert done.status == bare.status == 0, done.text[-3000:]
    assert done.output == bare.output, difference(done, bare)
    report = report_of(done)
    check_both_ranks(report)
    row = report["knobs"]["num_workers"]
    assert (row["in_force"], row["script"]) == (2 if job.options else 0, 0)
    assert all(entry["state"] in ("kept", "settling") for entry in report["ledger"])


@pytest.mark.long
@jobs(torchrun("--at", "step:7", "num_workers=2", env=ONE_HOLDS_A_FILE))
@waits_for
def test_where_one_rank_cannot_all_go_back(pool: Pool, job: Job) -> None:
    """The dataset of rank 1 holds an open file: both train to the end without workers, bit-identical."""
    done, bare = pool.result(job), pool.result(BARE)
    assert done.output == bare.output, difference(done, bare)
    report = report_of(done)
    (entry,) = report["ledger"]
    assert entry["state"] in ("rolled_back", "refused") and entry["reason"].startswith("rank 1: "), entry
    assert "open file" in entry["reason"] and report["knobs"]["num_workers"]["in_force"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("trainer", "words", "args"),
    [("ranks.py", CHANGES[3:], ()), ("process.py", PROCESS, ("spawn",)), ("process.py", PROCESS, ("fork",))],
)
def test_spawned_and_forked_trainings_do_what_they_do_bare(
    trainer: str, words: tuple[str, ...], args: tuple[str, ...], pool: Pool
) -> None:
    done, bare = pool.result(Job(trainer, words, args=args)), pool.result(Job(trainer, None, args=args))
    assert done.status == bare.status == 0, done.text[-3000:]
    assert done.output == bare.output, difference(done, bare)


@pytest.mark.long
def test_a_package_does_what_it_does_bare(tmp_path: Path) -> None:
    words = [*command_of(TRAINERS / "plain.py")[:1], "-m", "tests.trainers.as_package"]
    done, bare = run_under(words, tmp_path), run_bare(words, tmp_path)
    assert done.output == bare.output, difference(done, bare)


def printed(outcome: Outcome) -> Counter[str]:
    """Losses that two processes print into one file: one's newline may come after the other's words."""
    return Counter(re.findall(r"epoch \d+ step \d+ loss [-+.\d]+(?:e-?\d+)?", outcome.text))


@pytest.mark.long
@jobs(Job("light_module.py", ("--at", "step:3", "num_workers=1"), (("DEVICES", "2"),)))
@waits_for
def test_ranks_that_a_framework_starts(pool: Pool, job: Job) -> None:
    """Lightning runs the script once more for its second rank: both print, so lines are compared in any order."""
    done, bare = pool.result(job), pool.result(replace(job, options=None))
    assert done.status == bare.status == 0, done.text[-3000:]
    assert done.final == bare.final and printed(done) == printed(bare)
    report = report_of(done)
    check_both_ranks(report, 18)
    assert [entry["state"] for entry in report["ledger"]] in (["kept"], ["settling"])


@contextmanager
def running(tmp_path: Path) -> Iterator[Path]:
    """Two ranks that go on until they are stopped, both seen."""
    words = command_of(TRAINERS / "torchrun_ddp.py")
    command = [words[0], *TORCHRUN, words[1]]
    with detached(command, tmp_path, env={"EPOCHS": "4000", "PAUSE_S": "0.002"}) as folder:
        wait_until(lambda: both_step(tmp_path), "both ranks", 90)
        yield folder


def both_step(tmp_path: Path) -> bool:
    found = status(tmp_path)["ranks"]
    return len(found) == 2 and all(rank["step"] and rank["alive"] for rank in found)


@pytest.mark.long
def test_verbs_reach_every_rank(tmp_path: Path) -> None:
    with running(tmp_path):
        refused = ask(tmp_path, "set", "it", "threads=2")
        assert refused.returncode == 1 and "several ranks" in refused.stderr
        kept = ask(tmp_path, "set", "it", "num_workers=1", "--now", "--wait", timeout_s=120)
        assert kept.returncode == 0 and json.loads(kept.stdout)["state"] == "kept", kept.stdout + kept.stderr
        assert status(tmp_path)["knobs"]["num_workers"]["in_force"] == 1
        for verb, value in (("undo", 0), ("redo", 1)):
            assert ask(tmp_path, verb, "it").returncode == 0
            wait_until(lambda value=value: status(tmp_path)["knobs"]["num_workers"]["in_force"] == value, verb, 60)
        stopped = ask(tmp_path, "stop", "it", timeout_s=120)
        assert stopped.returncode == 0, stopped.stderr
    # a forked worker has the script's handler too, so there may be more
    assert {b"rank 0 saves", b"rank 1 saves"} <= set(logs(tmp_path).splitlines()), "each rank had its grace"


@pytest.mark.long
def test_a_rank_that_is_started_anew_takes_what_is_in_force(tmp_path: Path) -> None:
    """One is killed and started again: nothing stays pending, and the change holds for the new one too.

    Not by torchrun's own restarts: gloo hands the new ranks addresses of the old, bare or not.
    """
    command = command_of(TRAINERS / "restarts.py")
    with detached(command, tmp_path, env={"EPOCHS": "4000", "PAUSE_S": "0.002"}):
        wait_until(lambda: both_step(tmp_path), "both ranks", 90)
        assert ask(tmp_path, "set", "it", "num_workers=1", "--now", "--wait", timeout_s=120).returncode == 0
        old = {rank["rank"]: rank["pid"] for rank in status(tmp_path)["ranks"]}
        os.kill(old[1], signal.SIGKILL)

        def anew() -> bool:
            found = {rank["rank"]: rank["pid"] for rank in status(tmp_path)["ranks"] if rank["alive"]}
            return found.keys() == old.keys() and found[0] == old[0] and found[1] != old[1]

        wait_until(anew, "the new one", 120)
        wait_until(lambda: status(tmp_path)["knobs"]["num_workers"]["in_force"] == 1, "the change on both", 60)
        told = ask(tmp_path, "set", "it", "num_workers=2", "--now", "--wait", timeout_s=120)
        assert told.returncode == 0, told.stdout + told.stderr
