"""Ranks for the tests of several of them: processes that take changes as the probe does, in a room with the engine."""

from __future__ import annotations

from collections import deque
from typing import Any

from hearing import Room

from cockpit.engine import changes
from cockpit.history.fold import fold
from cockpit.history.state import Entry
from cockpit.model.events import ChangeAsked

OLD, NEW = 0, 4


class Rank:
    """A process that takes changes as the probe does: in the order asked, a drop only while still queued.

    ``fate`` is what becomes of the change under test: taken, refused, rolled_back (at once), or late (rolled back
    after it was said to be in force).
    """

    def __init__(self, room: Room, key: int, fate: str = "taken", world: int | None = None) -> None:
        self.room, self.key, self.pid, self.fate, self.world = room, key, 50 + key, fate, world
        self.value, self.failed = OLD, False
        self.known: dict[str, dict[str, Any]] = {}
        self.queue: list[str] = []
        self.applying: deque[tuple[str, int]] = deque()
        self.words: deque[dict[str, Any]] = deque()
        self.inbox: deque[dict[str, Any]] = deque()
        self.read = 0
        self.alive = True

    def join(self) -> None:
        self.room.hello(self.key, self.pid, rank=self.key, world=self.world)

    def receive(self) -> None:
        """One message that the engine has sent."""
        sent = self.room.sent.get(self.key, [])
        if self.read == len(sent):
            return
        message = sent[self.read]
        self.read += 1
        name = message["id"]
        if message["m"] == "ask" and name not in self.known:
            self.known[name] = message["knobs"]
            self.queue.append(name)
        elif message["m"] == "drop" and name in self.queue:
            self.queue.remove(name)
            self._say(name, "dropped")

    def land(self) -> None:
        """The next batch, or the next epoch."""
        if self.applying:
            name, before = self.applying.popleft()
            if self.fate == "rolled_back" and "-" not in name and not self.failed:
                self.value, self.failed = before, True
                self._say(name, "rolled_back", before=before, reason="out of memory")
            else:
                self._say(name, "settling", before=before)
        elif self.queue:
            name = self.queue.pop(0)
            if self.fate == "refused" and "-" not in name:
                self._say(name, "refused", reason="an open file")
                return
            before, wanted = self.value, self.known[name]["num_workers"]
            self.value = OLD if wanted == "script" else wanted
            self.applying.append((name, before))
            self._say(name, "applying", before=before)
        elif self.fate == "late" and not self.failed and self.value == NEW:
            self.value, self.failed = OLD, True
            self._say("c1", "rolled_back", before=OLD, reason="a worker died")

    def _say(self, name: str, state: str, before: int | None = None, reason: str | None = None) -> None:
        told = {} if before is None else {"num_workers": before}
        self.words.append({"m": "change", "id": name, "state": state, "step": 5, "before": told, "reason": reason,
                           "in_force": {"num_workers": self.value} if state == "settling" else {}})  # fmt: skip

    def speak(self) -> None:
        """One word reaches the engine."""
        if self.words and self.alive:
            self.room.hear(self.key, **self.words.popleft())

    def die(self) -> None:
        self.alive = False
        for event in self.room.ears.lost(self.key, self.room.at_s):
            self.room.state = fold(self.room.state, event)

    def rest(self) -> None:
        self.receive()
        self.land()
        self.speak()


def ask(room: Room, value: int = NEW, change: str = "c1", **more: Any) -> None:
    carry_out(room, changes.ask(room.state, room.at_s, change, {"num_workers": value}, **more))


def carry_out(room: Room, decision: changes.Decision) -> None:
    """As ``verbs`` does."""
    entries = {entry.id: entry for entry in room.state.ledger}
    for message in decision.messages:
        if message["m"] == "drop":
            entry = entries[message["id"]]
            room.ears.withdrawn[entry.id] = ChangeAsked(1.0, entry.id, entry.asked, entry.now, entry.loader)
    for event in decision.events:
        room.state = fold(room.state, event)
    for message in decision.messages:
        room.ears.tell(message)


def look(room: Room, later_s: float = 0.5) -> list[Any]:
    room.at_s += later_s
    events = room.ears.look_again(room.state, room.at_s)
    for event in events:
        room.state = fold(room.state, event)
    return events


def settle(room: Room, ranks: list[Rank]) -> None:
    """Until nobody has anything to do any more."""
    for _ in range(40):
        for rank in ranks:
            if rank.alive:
                rank.rest()
    for _ in range(20):
        look(room)
        for rank in ranks:
            if rank.alive:
                rank.rest()


def entry_of(room: Room, change: str = "c1") -> Entry | None:
    return next((entry for entry in room.state.ledger if entry.id == change), None)


def two(world: int | None = 2, fates: tuple[str, str] = ("taken", "taken")) -> tuple[Room, list[Rank]]:
    room = Room()
    ranks = [Rank(room, key, fate, world) for key, fate in enumerate(fates)]
    for rank in ranks:
        rank.join()
    return room, ranks
