"""What can go wrong under a changed precision, or compiled, and what then happens: real processes, against bare runs.

Under a change the training finishes; where a forward failed, every loss is the bare script's; where the training
diverged, it goes on from the state before, and the ledger says what is lost. Under the script's own settings it ends
as the bare script does. Most are struck in one run, each of them alone in the long tier.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.kernel_faults import DIES, KERNEL_FAULTS, SPOILT, STEPS, TOGETHER, UNDONE, Fault
from support.outcome import Outcome, difference
from support.pool import Job, Pool

from cockpit.history.journal import read_events
from cockpit.model.events import ProbeConnected

TRAINER = "kernel_faults.py"
AT = 2


def job(faults: Sequence[Fault], options: tuple[str, ...] | None, **env: str) -> Job:
    names = [name for fault in faults for name in (fault.name, "none")]
    more = {name: value for fault in faults for name, value in fault.env.items()}
    return Job(TRAINER, options, tuple(sorted({"FAULTS": ",".join(names), **more, **env}.items())))


def bare(faults: Sequence[Fault]) -> Job:
    return job(faults, None)


def struck(faults: Sequence[Fault]) -> Job:
    """Asked for in the third step of the fault's epoch; a quiet epoch follows, under the script's settings again."""
    options: list[str] = []
    for number, fault in enumerate(faults):
        knob = fault.knob.split("=")[0]
        first = 2 * STEPS * number
        options += ["--at", f"step:{first + AT}", fault.knob, "--at", f"step:{first + STEPS + 1}", f"{knob}=script"]
    return job(faults, tuple(options))


def own(fault: Fault, options: tuple[str, ...] | None) -> Job:
    return job([fault], options, OWN=fault.sets)


def needs(*jobs: Any) -> Any:
    """The runs that a test looks at, so that the pool can begin them before their turn."""

    def mark(test: Any) -> Any:
        test.needs = lambda **given: [make(**given) for make in jobs]
        return test

    return mark


def lines(outcome: Outcome) -> list[str]:
    return [line for line in outcome.text.splitlines() if line.split(" ")[0] in ("epoch", "FINAL", "DIED")]


def losses(line: str) -> list[str]:
    return re.findall(r"nan|inf|-?\d[\d.e-]*", line.split("losses")[1])


def check_struck(done: Outcome, plain: Outcome, faults: Sequence[Fault]) -> None:
    assert (done.status, plain.status) == (0, 0), done.talk + done.text[-3000:] + plain.text[-1000:]
    assert done.final is not None and done.report is not None
    asked = done.report["ledger"]
    ledger = [entry for entry in asked if not {"off", "script"} & {to for _, to in entry["change"].values()}]
    assert len(ledger) == len(faults), ledger
    same = True
    for number, (fault, entry) in enumerate(zip(faults, ledger, strict=True)):
        mine, theirs = (lines(outcome)[4 * number : 4 * number + 4] for outcome in (done, plain))
        same = same and fault.same
        if same:  # the epoch, its validation, and the quiet ones after it
            assert mine == theirs, difference(done, plain)
        if fault.reason is None:
            assert entry["outcome"] in (None, "kept", "reverted"), entry
            continue
        assert entry["outcome"] == "rolled_back", entry
        assert fault.reason in entry["reason"], entry
        assert "\n" not in entry["reason"] and len(entry["reason"]) < 260
        if fault.ours == UNDONE:
            told = re.search(r"back to step ([\d ]+): (?:the updates? of (\d+)|no update)", entry["reason"])
            assert told is not None and int(told[1].replace(" ", "")) == 2 * STEPS * number + AT, entry
            assert int(told[2] or 0) < STEPS - AT
            assert "schedule" in entry["reason"] and "EMA" in entry["reason"]
        assert not {"nan", "inf"} & set(losses(mine[2])), "what follows is sound"
    assert done.final["whole"] is all(fault.own != SPOILT or fault.reason for fault in faults)
    assert done.data_dir is not None
    hellos = [event for event in read_events(done.data_dir) if isinstance(event, ProbeConnected)]
    assert hellos and not any(hello.off for hello in hellos), "a part of the probe itself has failed"


@pytest.mark.parametrize("faults", [TOGETHER], ids=["one-run"])
@needs(lambda faults: bare(faults), lambda faults: struck(faults))
def test_what_needs_no_compiler_in_one_run(pool: Pool, faults: Sequence[Fault]) -> None:
    check_struck(pool.result(struck(faults)), pool.result(bare(faults)), faults)


# ---- the volume ------------------------------------------------------------------------------------------------


def named(fault: Fault) -> str:
    return fault.name if fault.name != "none" else next(iter(fault.env)).lower()


@pytest.mark.long
@pytest.mark.parametrize("fault", KERNEL_FAULTS, ids=named)
@needs(lambda fault: bare([fault]), lambda fault: struck([fault]))
def test_each_fault_of_the_kernels_under_a_change(pool: Pool, fault: Fault) -> None:
    check_struck(pool.result(struck([fault])), pool.result(bare([fault])), [fault])


@pytest.mark.long
@pytest.mark.parametrize("fault", KERNEL_FAULTS, ids=named)
@needs(lambda fault: own(fault, None), lambda fault: own(fault, ()))
def test_each_fault_of_the_kernels_under_the_scripts_own_settings(pool: Pool, fault: Fault) -> None:
    ours, plain = pool.result(own(fault, ())), pool.result(own(fault, None))
    assert plain.status == (1 if fault.own == DIES else 0), plain.text[-3000:]
    assert ours.status == plain.status, ours.talk + ours.text[-3000:]
    assert lines(ours) == lines(plain), difference(ours, plain)
    assert ours.report is not None and ours.report["ledger"] == []
