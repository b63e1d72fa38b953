"""The probe's end of the socket: it reconnects for ever, never waits, and counts what it had to drop."""

from __future__ import annotations

import json
import os
import socket
import threading
import time

import pytest
from fake_engine import FakeEngine, finish, launch, probe_env, script

from cockpit.probe import link as linking
from cockpit.probe.link import QUEUED, RETRY_NS, Link


class Clock:
    now = 0

    def __call__(self):
        return self.now


def linked(path, clock=None):
    return Link(str(path), clock or Clock(), lambda: [{"m": "hello"}, {"m": "loaders", "loaders": []}])


def pump_until(link, engine, kind, **fields):
    end = time.monotonic() + 10
    while not engine.of(kind, **fields):
        link.pump()
        assert time.monotonic() < end
        time.sleep(0.005)


def test_each_connection_begins_with_the_greeting_and_messages_arrive_in_order(tmp_path):
    engine, link = FakeEngine(tmp_path / "s"), linked(tmp_path / "s")
    for n in range(5):
        link.say({"m": "tick", "n": n})
    link.pump()
    pump_until(link, engine, "tick", n=4)
    assert [m["m"] for m in engine.messages] == ["hello", "loaders", *["tick"] * 5]
    assert [m["n"] for m in engine.of("tick")] == list(range(5))


def test_asks_arrive_whole_however_they_are_cut(tmp_path):
    engine, link = FakeEngine(tmp_path / "s"), linked(tmp_path / "s")
    link.pump()
    engine.wait("hello")
    line = json.dumps({"m": "ask", "id": "é"}).encode() + b"\n"
    heard = []
    for piece in (line[:3], line[3:11], line[11:] + b"garbage\n" + line, b"[1]\n"):
        engine._peers[-1].sendall(piece)
        time.sleep(0.02)
        heard += link.pump()
    assert heard == [{"m": "ask", "id": "é"}] * 2
    assert link.connected


def test_it_tries_again_once_a_second_and_keeps_what_it_has_to_say(tmp_path):
    clock = Clock()
    link = linked(tmp_path / "s", clock)
    link.say({"m": "epoch", "n": 1})
    assert link.pump() == [] and not link.connected
    engine = FakeEngine(tmp_path / "s")
    link.pump()
    assert not link.connected
    clock.now += RETRY_NS
    link.pump()
    assert link.connected
    pump_until(link, engine, "epoch", n=1)
    engine.close()
    link.say({"m": "epoch", "n": 2})
    for _ in range(100):
        link.pump()
        if not link.connected:
            break
        time.sleep(0.01)
    again = FakeEngine(tmp_path / "s")
    clock.now += RETRY_NS
    link.say({"m": "epoch", "n": 3})
    pump_until(link, again, "epoch", n=3)
    assert [m["m"] for m in again.messages][:2] == ["hello", "loaders"]


def test_an_engine_that_never_reads_costs_nothing_but_messages(tmp_path):
    engine, link = FakeEngine(tmp_path / "s", reads=False), linked(tmp_path / "s")
    began = time.monotonic()
    for n in range(20_000):
        link.say({"m": "tick", "n": n, "filler": "x" * 200})
        if n % 10 == 0:
            link.pump()
    assert time.monotonic() - began < 20
    assert link.connected and len(link._queue) <= QUEUED and link.dropped > 1000
    threading.Thread(target=engine._read, args=(engine._peers[0],), daemon=True).start()
    pump_until(link, engine, "dropped")
    heard = [m["n"] for m in engine.of("tick")]
    assert heard == sorted(heard)
    assert sum(m["count"] for m in engine.of("dropped")) + len(heard) + len(link._queue) >= 20_000 - 1


def test_changes_and_epochs_outlive_a_flood_of_ticks(tmp_path):
    link = linked(tmp_path / "none")
    link.say({"m": "change", "id": "c1"})
    for n in range(3 * QUEUED):
        link.say({"m": "tick", "n": n})
    assert link._queue[0] == {"m": "change", "id": "c1"}
    assert link._queue[-1]["n"] == 3 * QUEUED - 1


@pytest.mark.parametrize("path", ["", "/nonexistent/s", "/tmp/" + "x" * 200, "/dev/null"])
def test_no_socket_no_matter(path):
    link = linked(path)
    link.say({"m": "tick"})
    assert link.pump() == [] and not link.connected
    link.close()


def test_a_descriptor_that_became_the_scripts_own_is_neither_written_nor_closed(tmp_path):
    engine, link = FakeEngine(tmp_path / "s"), linked(tmp_path / "s")
    link.pump()
    engine.wait("hello")
    number = link._socket.fileno()
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    os.dup2(theirs, number)  # in one go: threads of other tests take a number that is free for a moment
    os.close(theirs)
    link.say({"m": "tick"})
    link.pump()
    link.close()
    assert os.fstat(number).st_size == 0
    os.close(number)


def test_the_socket_is_not_inherited_by_programs_that_the_script_starts(tmp_path):
    engine, link = FakeEngine(tmp_path / "s"), linked(tmp_path / "s")
    link.pump()
    assert os.get_inheritable(link._socket.fileno()) is False
    assert link._socket.gettimeout() == 0.0
    assert engine and linking.QUEUED < 10_000 and socket.AF_UNIX


TRAINING = """
    import os, sys, time
    import torch
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print(os.getpid(), flush=True)
    stop = sys.argv[1]
    for epoch in range(10_000):
        for x in DataLoader(torch.ones(40, 2), batch_size=4):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            time.sleep(0.002)
        if os.path.exists(stop):
            break
    print("done", flush=True)
    """


def test_the_training_outlives_its_engine_and_finds_the_next_one(tmp_path):
    path, run, stop = script(tmp_path, TRAINING), tmp_path / "run", tmp_path / "stop"
    run.mkdir()
    engine = FakeEngine(run / "s")
    process = launch(path, probe_env(run, {}), str(stop))
    first = engine.wait("tick")
    engine.ask("c1", num_workers=1)
    engine.wait("change", id="c1", state="settling")
    engine.close()
    time.sleep(0.5)
    again = FakeEngine(run / "s")
    hello = again.wait("hello")
    assert hello["pid"] == process.pid == first.get("pid", process.pid) and hello["trains"] is True
    assert again.wait("change", id="c1")["state"] == "settling"
    assert again.wait("loaders")["loaders"][0]["knobs"][0]["in_force"] == 1
    tick = again.wait("tick")
    assert tick["step"] > first["step"]
    again.ask("c1", num_workers=3)
    again.ask("c2", now=True, num_workers=0)
    assert again.wait("change", id="c2", state="settling")["in_force"] == {"num_workers": 0}
    assert len(again.of("change", id="c1")) == 1
    stop.touch()
    out, err = finish(process)
    assert out.endswith("done\n") and err == "" and process.returncode == 0


def test_a_short_training_is_told_whole_at_its_end(tmp_path):
    path, run = script(tmp_path, TRAINING), tmp_path / "run"
    run.mkdir()
    engine = FakeEngine(run / "s")
    (tmp_path / "stop").touch()
    out, err = finish(launch(path, probe_env(run, {}), str(tmp_path / "stop")))
    assert out.endswith("done\n") and err == ""
    epoch = engine.wait("epoch", timeout_s=5)
    assert (epoch["steps"], epoch["samples"]) == (10, 40)
    assert sum(m["steps"] for m in engine.of("tick")) == 10
