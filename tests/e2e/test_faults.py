"""What can go wrong, and what happens then: real processes, real signals, against the script that nothing strikes.

Under settings that a change has made: no sample lost or twice, every loss the same, no worker left, no exception in
the script, and the ledger says that and why the settings before are back. Under the script's own: what the bare
script does. One of each kind is struck in one run, of both sorts, the others one by one in the long tier; there also
200 changes in one run, while something strikes in two epochs of three.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.faults import BY_NAME, FAULTS, PATIENCE_S, STATUS, STEPS, TOGETHER, Fault
from support.outcome import Outcome, difference
from support.pool import Job, Pool

TRAINER = "faults.py"
KINDS = (
    "kill-optimizer",
    "message",
    "signal-bus",
    "stopped",
    "raise-late",
    "raise-local",
    "fork-second",
    "descriptors",
    "shm",
)
OWN = ("kill-optimizer", "signal-bus", "hang-late", "unsendable", "raise-late", "fork-second", "descriptors")
ONE_OF_EACH = tuple(BY_NAME[name] for name in KINDS)
IMPATIENT = {"COCKPIT_PATIENCE_S": str(PATIENCE_S)}
WATCHDOG_S = 15


def job(epochs: Sequence[str], options: tuple[str, ...] | None, env: Mapping[str, str] | None = None) -> Job:
    return Job(TRAINER, options, tuple(sorted({"FAULTS": ",".join(epochs), **(env or {})}.items())))


def struck(faults: Sequence[Fault]) -> Job:
    """One epoch for each of ``faults`` (and more where it needs them), each change asked for in the middle of it."""
    epochs: list[str] = []
    options: list[str] = []
    env = dict(IMPATIENT)
    for fault in faults:
        for step, words in fault.asks:
            for word in words:
                options += ["--at", f"step:{STEPS * len(epochs) + step}", word]
        epochs += fault.epochs()
        env.update({name: value for name, value in fault.env.items() if not name.startswith("OWN_")})
    return job(epochs, tuple(options), env)


def quiet(faults: Sequence[Fault]) -> Job:
    """The bare script: without workers there is nothing to strike, and this is what all must come to."""
    return job([name for fault in faults for name in fault.epochs()], None)


def own(fault: Fault, options: tuple[str, ...] | None) -> Job:
    """The script has two workers itself, and a watchdog where it would hang for ever."""
    env = {name.removeprefix("OWN_"): value for name, value in fault.env.items()}
    watchdog = {"WATCHDOG_S": str(WATCHDOG_S)} if fault.own == "hangs" else {}
    return job(fault.epochs(), options, {**env, **watchdog, "WORKERS": "2", **IMPATIENT})


def needs(*jobs: Any) -> Any:
    """The runs that a test looks at, so that the pool can begin them before their turn."""

    def mark(test: Any) -> Any:
        test.needs = lambda **given: [make(**given) for make in jobs]
        return test

    return mark


def told(outcome: Outcome) -> list[str]:
    """What the script itself has printed, whatever its workers wrote between."""
    return [line for line in outcome.text.splitlines() if line.split(" ")[0] in ("epoch", "FINAL", "DIED", "HUNG")]


HANG_UP = re.compile(r"Traceback \(most recent call last\):\n(?:  .*\n)*?  .*resource_sharer\.py.*\n(?:  .*\n)*\S.*\n")
"""A worker whose batch was being fetched when another's death was noticed: its own Python says so, bare too."""


def said(outcome: Outcome) -> str:
    return HANG_UP.sub("", outcome.text)


def check_struck(done: Outcome, bare: Outcome, faults: Sequence[Fault]) -> None:
    assert (done.status, bare.status) == (0, 0), done.talk + done.text[-3000:]
    assert told(done) == told(bare), difference(done, bare)
    assert said(done) == said(bare), difference(done, bare)
    final, report = done.final, done.report
    assert final is not None and report is not None
    assert all(final["samples"])  # each index once in every epoch
    assert final["children"] == 0 and report["survivors"] == []
    ledger = list(report["ledger"])
    for fault in faults:
        for _ in fault.asks:
            entry = ledger.pop(0)
            if fault.reason is None:
                assert entry["state"] in ("settling", "kept"), entry
            else:
                assert entry["outcome"] == "rolled_back", entry
                assert fault.reason in entry["reason"]
                assert "\n" not in entry["reason"] and len(entry["reason"]) < 200
    assert not ledger
    (loader,) = [loader for loader in report["loaders"] if loader["role"] == "train"]
    assert loader["knobs"]["num_workers"] == faults[-1].in_force
    assert loader["workers_alive"] == 0


@pytest.mark.parametrize("faults", [ONE_OF_EACH], ids=["one-of-each"])
@needs(lambda faults: quiet(faults), lambda faults: struck(faults))
def test_one_of_each_kind_in_one_run(pool: Pool, faults: Sequence[Fault]) -> None:
    check_struck(pool.result(struck(faults)), pool.result(quiet(faults)), faults)


def ended(lines: list[str]) -> list[str]:
    """A death that is noticed while the script handles something else ends it without its last word, bare too."""
    return lines if lines and lines[-1].split(" ")[0] in ("FINAL", "DIED", "HUNG") else [*lines, "DIED"]


def check_own(ours: Outcome, bare: Outcome, fault: Fault) -> None:
    """The same end, and the same on the way: how far it came before a worker was missed is a matter of moments."""
    assert bare.status == STATUS[fault.own], bare.text[-3000:]
    assert ours.status == bare.status, ours.talk + ours.text[-3000:]
    check_end(ended(told(ours)), ended(told(bare)), fault)
    assert ours.report is not None
    assert ours.report["ledger"] == [] and ours.report["survivors"] == []


def check_end(mine: list[str], theirs: list[str], fault: Fault) -> None:
    # a worker that is gone is missed by its signal, or by the next batch that is fetched from it, a moment later: torch
    # then says one thing or another, bare too (seen under load: a refused or a reset connection)
    words = 1 if fault.kind in ("dies", "killed") else 3
    assert mine[-1].split(" ")[:words] == theirs[-1].split(" ")[:words]
    assert all(one == other for one, other in zip(mine[:-1], theirs[:-1], strict=False)), (mine, theirs)


@pytest.mark.parametrize("fault", [BY_NAME["kill-optimizer"]], ids=lambda fault: fault.name)
@needs(lambda fault: own(fault, None), lambda fault: own(fault, ()))
def test_own_settings_end_as_the_bare_script(pool: Pool, fault: Fault) -> None:
    check_own(pool.result(own(fault, ())), pool.result(own(fault, None)), fault)


def own_each(faults: Sequence[Fault], options: tuple[str, ...] | None) -> Job:
    """One training after the other in one process, each with two workers of the script's own."""
    hanging = ",".join(fault.name for fault in faults if fault.own == "hangs")
    env = {"WORKERS": "2", "ALARM_S": "1.5", "HANGING": hanging, **IMPATIENT}
    return job([fault.name for fault in faults], options, env)


def through_all(pool: Pool, wanted: Job) -> Outcome:
    """A dead worker is raised by torch in whatever runs by then, bare or not: now and then between two of these
    trainings, which ends them all. Run again then, twice at the most."""
    outcome = pool.result(wanted)
    for again in ("1", "2"):
        if outcome.status == 0:
            break
        outcome = pool.result(replace(wanted, env=(*wanted.env, ("AGAIN", again))))
    return outcome


def parts(outcome: Outcome) -> list[list[str]]:
    """What each of those trainings has printed, to its end."""
    found: list[list[str]] = [[]]
    for line in told(outcome)[:-1]:
        found[-1].append(line)
        if line.startswith("DIED "):
            found.append([])
    assert found.pop() == [], "the last one has died as well"
    return found


@pytest.mark.parametrize("faults", [tuple(BY_NAME[name] for name in OWN)], ids=["one-of-each"])
@needs(lambda faults: own_each(faults, None), lambda faults: own_each(faults, ()))
def test_one_of_each_kind_under_the_scripts_own_settings(pool: Pool, faults: Sequence[Fault]) -> None:
    ours, bare = through_all(pool, own_each(faults, ())), through_all(pool, own_each(faults, None))
    assert (ours.status, bare.status) == (0, 0), ours.talk + ours.text[-3000:] + bare.text[-3000:]
    assert {fault.kind for fault in faults} == {fault.kind for fault in FAULTS}
    assert len(parts(ours)) == len(parts(bare)) == len(faults), difference(ours, bare)
    for fault, mine, theirs in zip(faults, parts(ours), parts(bare), strict=True):
        check_end(mine, theirs, fault)
    assert ours.final == bare.final == {"children": 0}
    assert ours.report is not None
    assert ours.report["ledger"] == [] and ours.report["survivors"] == []


# ---- the volume ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@needs(lambda fault: quiet([fault]), lambda fault: struck([fault]))
def test_each_fault_under_a_change(pool: Pool, fault: Fault) -> None:
    check_struck(pool.result(struck([fault])), pool.result(quiet([fault])), [fault])


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@needs(lambda fault: own(fault, None), lambda fault: own(fault, ()))
def test_each_fault_under_the_scripts_own_settings(pool: Pool, fault: Fault) -> None:
    check_own(pool.result(own(fault, ())), pool.result(own(fault, None)), fault)


EPOCHS, AT_BOUNDARIES, AT_STEPS = 50, 40, 160
CHANGES = AT_BOUNDARIES + AT_STEPS
KNOBS = {
    "num_workers": "012341234", "prefetch_factor": "124", "persistent_workers": ("on", "off"), "threads": "12",
}  # fmt: skip
STORMS: tuple[tuple[Mapping[str, Sequence[str]], Mapping[str, str]], ...] = (
    (KNOBS, {}),
    (KNOBS, {}),
    ({**KNOBS, "pin_memory": ("on", "off")}, {"PINNED": "1"}),
    ({**KNOBS, "num_workers": "011", "in_order": ("on", "off")}, {}),  # the order stays with one worker
)
"""What is changed, each at a moment of its own, and what the script is like."""


def strikes(seed: int) -> list[str]:
    """What strikes in each epoch: something in two of three, and now and then something that hangs."""
    draw = random.Random(seed)
    hangs = [fault.name for fault in TOGETHER if fault.kind == "hangs"]
    names = [fault.name for fault in TOGETHER if fault.kind != "hangs"]
    weighed = {0.1: hangs, 0.67: names, 1.0: ["none"]}
    chances = [draw.random() for _ in range(EPOCHS)]
    return [draw.choice(next(kind for limit, kind in weighed.items() if chance < limit)) for chance in chances]


def calm(seed: int) -> Job:
    return job(strikes(seed), None, STORMS[seed][1])


def storm(seed: int) -> Job:
    """200 changes at random moments of one run."""
    draw, (knobs, env) = random.Random(seed), STORMS[seed]
    moments = [f"epoch:{number}" for number in draw.sample(range(EPOCHS), AT_BOUNDARIES)]
    moments += [f"step:{number}" for number in draw.sample(range(STEPS * EPOCHS), AT_STEPS)]
    options: list[str] = []
    for moment in moments:
        name = draw.choice(["num_workers", *knobs])
        options += ["--at", moment, f"{name}={draw.choice(knobs[name])}"]
    return job(strikes(seed), tuple(options), {**IMPATIENT, **env})


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(len(STORMS)))
@needs(lambda seed: calm(seed), lambda seed: storm(seed))
def test_a_storm_of_changes_and_faults_in_one_run(pool: Pool, seed: int) -> None:
    done, bare = pool.result(storm(seed)), pool.result(calm(seed))
    assert done.status == 0, done.talk + done.text[-3000:]
    # many workers that find no file left to open write about it to stderr themselves
    assert told(done) == told(bare), difference(done, bare)
    assert "descriptors-late" in strikes(seed) or said(done) == said(bare), difference(done, bare)
    assert done.final is not None and done.report is not None
    assert done.final["children"] == 0 and done.report["survivors"] == []
    ledger = done.report["ledger"]
    assert len(ledger) == CHANGES, "each is told of"
    unseen = [entry["state"] for entry in ledger if not entry["outcome"]]
    assert unseen in ([], ["settling"]), "and what became of it, but for the one that the end came upon"
    assert {"kept", "rolled_back"} < {entry["outcome"] for entry in ledger}
