"""Clients of an engine: many, slow, rude; none may hold up the engine, the others or the training."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace

from engine_runs import Started, python, scripted, wait_for

from cockpit.engine import processes
from cockpit.engine.engine import Engine
from cockpit.engine.start import ensure_engine
from cockpit.history.fold import fold
from cockpit.history.journal import read_state
from cockpit.history.state import State
from cockpit.wire.codec import event_from_plain, from_plain


def test_watcher_sees_exactly_what_the_engine_and_the_journal_know(start) -> None:
    run: Started = start(scripted("--epochs", 2, "--steps", 100, "--speed", 4))
    client = run.client()
    client.say(m="watch")
    state = from_plain(State, client.hear()["state"])
    while state.phase not in ("ended", "lost"):
        message = client.hear()
        assert message["m"] == "event"
        event = event_from_plain(message["e"])
        assert event is not None
        state = fold(state, event)
    assert state == read_state(run.run.data)
    # the engine stays for whoever still looks, and leaves with them
    time.sleep(0.8)
    assert client.engine()
    late = run.client()
    late.say(m="watch")
    assert from_plain(State, late.hear()["state"]) == state
    assert not run.ask("set", knobs={"num_workers": 1})["ok"]
    late.close()
    client.close()
    wait_for(lambda: not run.run.socket.exists(), "the engine leaves")


def test_client_that_never_reads_gets_a_snapshot_in_the_end(start) -> None:
    run = start(scripted("--epochs", 50, "--steps", 4000, "--speed", 20, "--print-every", 0))
    run.until("it trains", lambda status: status["step"])
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(str(run.run.socket))
    deaf.sendall(b'{"m":"watch"}\n')
    # answers that it does not read fill its queue; it must stop there and nobody else may notice
    asking = b'{"m":"do","n":1,"verb":"status","args":{}}\n'
    deaf.setblocking(False)
    sent = 0
    until = time.monotonic() + 20
    while time.monotonic() < until and sent < 200_000:
        try:
            sent += deaf.send(asking * 50)
        except BlockingIOError:
            break
    before = run.status()["step"]
    memory = resident_kb(run.engine())
    run.until("steps go on", lambda status: status["step"] > before + 100)
    assert resident_kb(run.engine()) < memory + 8_000
    deaf.setblocking(True)
    deaf.settimeout(20)
    snapshots, rest = 0, b""
    while snapshots < 2:
        piece = deaf.recv(65536)
        assert piece
        *lines, rest = (rest + piece).split(b"\n")
        snapshots += sum(line.startswith(b'{"m":"snapshot"') for line in lines)
    deaf.close()
    run.ask("stop", force=True)
    run.ended()


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4


def test_an_engine_that_leaves_hears_nobody_any_more() -> None:
    """What it would begin for them, nobody would see to."""
    told: list[str] = []
    engine = Engine.__new__(Engine)
    nobody = SimpleNamespace(state=SimpleNamespace(ranks=()), journal=SimpleNamespace(close=lambda: told.append("end")))
    mine = {"_record": nobody, "_watch_keeper": lambda: None, "server": SimpleNamespace(close=lambda: None)}
    engine.__dict__.update(mine, _left=False)

    async def turn() -> None:
        engine._left = True
        asyncio.get_running_loop().call_soon(told.append, "heard")

    engine._turn = turn  # type: ignore[method-assign]
    asyncio.run(engine.run())
    assert told[0] == "end"


def test_rude_words_get_a_sentence_or_nothing(start) -> None:
    run = start(scripted("--epochs", 5, "--steps", 400, "--speed", 2))
    client = run.client()
    client.socket.sendall(b'\xff\xfe garbage\n[1,2]\n"x"\n\n{"m":"no such thing"}\n{"m":"tick","steps":3}\n')
    cases = [
        ("fly", {}, "unknown verb 'fly'"),
        ("set", {"knobs": {"num_worker": 2}}, "did you mean 'num_workers'"),
        ("set", {"knobs": {"num_workers": -1}}, "num_workers cannot be -1"),
        ("set", {"knobs": {"num_workers": "many"}}, "num_workers cannot be many"),
        ("set", {"knobs": [1]}, "set takes knobs by name"),
        ("set", {}, "name a knob and a value"),
        ("set", {"now": True}, "nothing is queued"),
        ("undo", {}, "nothing to undo"),
        ("redo", {}, "nothing to redo"),
        ("drop", {}, "no change is queued"),
        ("stop", {"grace_s": "soon"}, "a number of seconds"),
        ("baseline", {}, "not enough is measured"),
    ]
    for verb, args, words in cases:
        answer = client.ask(verb, **dict(args))
        assert not answer["ok"] and words in answer["error"] and answer["code"] in (1, 2), answer
    assert client.ask("status")["ok"]
    client.close()
    assert run.run.engine_log.read_bytes() == b""
    run.ask("stop", force=True)
    run.ended()


def test_flood_of_output_and_truncation(start) -> None:
    flood = """
import os, sys, time
line = b"x" * 99 + b"\\n"
for _ in range(50):
    os.write(1, line * 10000)
os.ftruncate(1, 0)
sys.stdout.write("half\\r\\x1b[31mred [/markup] \\x9b2J\\xe9\\x1b[0m\\n")
sys.stdout.flush()
time.sleep(2.5)
os.write(2, b"\\xff\\xfe last \\x00 word")
time.sleep(1.5)
"""
    run = start(python(flood))
    began = time.monotonic()
    status = run.status()
    assert status["state"] in ("running", "ended")
    assert time.monotonic() - began < 5

    def line() -> str:
        state = read_state(run.run.data)
        return state.output.line if state is not None and state.output else ""

    wait_for(lambda: line() == "red [/markup] é", "the line after the truncation")
    state = run.ended()
    assert state.output is not None and state.output.line == "\ufffd\ufffd last  word"
    assert state.exit_status == 0
    assert resident_and_gone(run)


def resident_and_gone(run: Started) -> bool:
    return processes.read_exit(run.run) == (0, None)


def test_run_that_is_over_can_still_be_looked_at(start) -> None:
    run = start(scripted("--epochs", 1, "--steps", 100, "--speed", 8))
    state = run.ended()
    wait_for(lambda: not run.run.socket.exists(), "the engine leaves")
    files = {path.name: path.read_bytes() for path in run.run.data.glob("journal*")}
    assert not ensure_engine(run.run)
    assert ensure_engine(run.run, to_show=True)
    client = run.client()
    client.say(m="watch")
    assert from_plain(State, client.hear()["state"]) == state
    time.sleep(2.5)
    assert client.ask("status")["result"]["state"] == "ended"
    client.close()
    wait_for(lambda: not run.run.socket.exists(), "the engine leaves again")
    assert {path.name: path.read_bytes() for path in run.run.data.glob("journal*")} == files
