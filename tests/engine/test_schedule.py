"""What is set from the start and what waits for its moment, through a real engine and the scripted trainer."""

from __future__ import annotations

from engine_runs import Started, scripted

from cockpit.engine.start import Scheduled


def test_setup_and_schedule_reach_the_training_and_the_ledger(start) -> None:
    run: Started = start(
        scripted("--epochs", 2, "--steps", 60, "--speed", 4),
        setup={"prefetch_factor": 3},
        loaders={"train.py:41": {"num_workers": 1}},
        at=[
            Scheduled("step", 20, {"num_workers": 2}),
            Scheduled("epoch", 1, {"pin_memory": True}),
            Scheduled("epoch", 7, {"num_workers": 0}),
        ],
    )
    state = run.ended()
    assert state.setup == {"prefetch_factor": 3}
    first, second, never = state.ledger
    assert (first.id, first.origin, first.now, first.at_step) == ("at0", "schedule", True, 20)
    assert first.change == {"num_workers": (1, 2)}
    assert (second.id, second.now, second.at_step, second.change) == ("at1", False, 60, {"pin_memory": (False, True)})
    assert (never.id, never.state) == ("at2", "refused")
    assert never.reason == "the training ended before it could be applied"
    in_force = {report.name: report.in_force for report in state.loaders[0].knobs}
    assert in_force["prefetch_factor"] == 3 and in_force["num_workers"] == 2


def test_refused_and_rolled_back_come_with_their_reason(start) -> None:
    options = ("--epochs", 1, "--steps", 400, "--speed", 8)
    run = start(scripted(*options, "--refuse", "pin_memory=no accelerator found"))
    run.until("it trains", lambda status: status["step"])
    run.ask("set", knobs={"pin_memory": True}, now=True)
    entry = run.until(
        "it is refused", lambda status: status["ledger"] and status["ledger"][0]["outcome"] and status["ledger"][0]
    )
    assert (entry["outcome"], entry["reason"]) == ("refused", "no accelerator found")
    run.ended()
    run = start(scripted(*options, "--roll-back", "a worker died"))
    run.until("it trains", lambda status: status["step"])
    run.ask("set", knobs={"num_workers": 2}, now=True)
    entry = run.until(
        "it comes back", lambda status: status["ledger"] and status["ledger"][0]["outcome"] and status["ledger"][0]
    )
    assert (entry["outcome"], entry["reason"]) == ("rolled_back", "a worker died")
    run.ended()


def test_asked_before_anything_was_heard_lands_all_the_same(start) -> None:
    waits = (
        "import runpy, sys, time; time.sleep(1.0); sys.argv[1:] = ['--epochs', '1', '--steps', '60', '--speed', '4']; "
    )
    run = start([*scripted()[:1], "-c", waits + "runpy.run_module('cockpit.engine.scripted', run_name='__main__')"])
    assert run.status()["probe"] == "waiting"
    assert run.ask("set", knobs={"num_workers": 2}, now=True)["ok"]
    assert run.status()["knobs"]["num_workers"]["state"] == "queued"
    assert run.ended().ledger[0].change == {"num_workers": (0, 2)}


def test_drop_undo_and_redo_through_the_wire(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 3000, "--speed", 8))
    run.until("it trains", lambda status: status["step"])
    queued = run.ask("set", knobs={"num_workers": 4})["result"]["id"]
    assert run.ask("drop")["result"] == {"dropped": [queued]}
    assert run.status()["ledger"] == []

    def in_force(status: dict) -> object:
        return status["knobs"]["num_workers"]["in_force"]

    changed = run.ask("set", knobs={"num_workers": 4}, now=True)["result"]["id"]
    run.until("it lands", lambda status: in_force(status) == 4)
    assert run.ask("undo")["result"]["of"] == changed
    run.until("it is back", lambda status: in_force(status) == 0)
    assert run.status()["ledger"][0]["outcome"] == "reverted"
    assert run.ask("redo")["ok"]
    run.until("it is there again", lambda status: in_force(status) == 4)
    run.ask("stop", force=True)
    run.ended()
