"""What has been asked for and has not landed yet: from start.json, from the schedule, from the engine.

``receive`` and ``tick`` may run in the probe's thread, the rest in the script's; nothing here touches a loader.
It must never lose an ask silently: each ends in a message.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Callable

from ..model.errors import CockpitError
from ..model.knobs import BATCH_KNOBS, KERNEL_KNOBS, LOADER_KNOBS, Value, check_value
from .groups import Refused
from .recorder import Recorder, Setting
from .streams import TRAIN, UNKNOWN, LoaderRecord

OF_LOADERS = LOADER_KNOBS + BATCH_KNOBS
"""Knobs of single loaders, in whichever room."""


class Ask:
    """One change. ``due``: None, or ("epoch" | "step" | "time", n). ``done_on``: loaders that have it.

    ``knobs`` are those of loaders; ``kernels`` those of the whole training, which ride along or go alone.
    ``looked`` and ``kernels_found``: whether each part has been seen in force.
    """

    def __init__(self, name: str, knobs: Mapping[str, Value], now: bool, loader: str | None) -> None:
        self.id = name
        self.knobs = dict(knobs)
        self.kernels: dict[str, Value] = {}
        self.former: str | None = None
        self.looked = self.kernels_found = self.foretold = False
        self.note: str | None = None
        """What was said of it before it was applied; ``foretold`` once everybody could judge."""
        self.now = now
        self.loader = loader
        self.due: tuple[str, float] | None = None
        self.state = "queued"
        self.done_on: set[str] = set()
        self.before: dict[str, Any] = {}
        self.in_force: dict[str, Any] = {}
        self.stall_ns = 0
        self.drain = 0
        self.capacity = 0
        self.last: dict[str, Any] | None = None
        self.change: str | None = name
        """What steps run under once it has landed."""
        self.undoes: tuple[Ask, str] | None = None
        """Of our own: it gives back the loader part of a change whose kernel part failed, and why."""
        self.backs: set[str] = set()
        self.kept: list[str] = []
        self.compiled: tuple[Any, ...] | None = None
        """What had been compiled when it came into force: bringing it there may compile, too."""

    @property
    def group_knobs(self) -> dict[str, Value]:
        """Those of the coupled loader group."""
        return of_group(self.knobs)


def of_group(knobs: Mapping[str, Value]) -> dict[str, Value]:
    """The knobs of the coupled loader group alone."""
    return {name: value for name, value in knobs.items() if name in LOADER_KNOBS}


class Asks:
    """All asks of this process by id; ``waiting`` are those that some loader has still to take."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.foresee: Callable[[Ask], None] = lambda ask: None
        """Raises Refused where it is known already that an ask will be."""
        self.foretellers: list[Callable[[Ask], str | None]] = []
        """Each says what a change would cost or risk, "" where nothing; None: that cannot be judged yet."""
        self.news = False
        """Set when there is more or less waiting than before."""
        self.compiled: Callable[[], tuple[Any, ...]] = lambda: (None, None, None)
        """Nanoseconds, graphs and recompilations so far, so that none of them counts for a change that came later."""
        self.said: deque[dict[str, Any]] = deque()
        """Messages for the engine, oldest first."""
        self.restart()

    def restart(self) -> None:
        """Nothing asked: at install and in a forked child."""
        self.began_ns = self._recorder.clock()
        self.by_id: dict[str, Ask] = {}
        self.waiting: list[Ask] = []
        self.start_set: dict[str, Value] = {}
        self.kernel_set: dict[str, Value] = {}
        self.start_loaders: dict[str, dict[str, Value]] = {}
        self.said.clear()

    def start(self, told: Mapping[str, Any]) -> None:
        """What start.json says: set from the start, per loader, and the schedule; in a later life, what came before."""
        if told.get("change") is not None:
            self._recorder.setting = Setting(str(told["change"]))
        if told.get("began_s") is not None:
            self.began_ns = self._recorder.clock() - int((time.time() - float(told["began_s"])) * 1e9)
        self.start_set = self._sound(told.get("set") or {})
        self.kernel_set = self._sound(told.get("set") or {}, KERNEL_KNOBS)
        for name, knobs in (told.get("loaders") or {}).items():
            self.start_loaders[name] = self._sound(knobs)
        for entry in told.get("at") or ():
            ask = Ask(str(entry["id"]), entry["knobs"], entry["when"] != "epoch", entry.get("loader"))
            ask.due = (entry["when"], float(entry["n"]))
            self._take(ask)

    @staticmethod
    def _sound(knobs: Mapping[str, Any], known: tuple[str, ...] = OF_LOADERS) -> dict[str, Value]:
        return {name: check_value(name, value) for name, value in knobs.items() if name in known}

    def receive(self, message: Mapping[str, Any]) -> None:
        """An ``ask`` or ``drop`` from the engine; a known id is ignored."""
        name = str(message.get("id"))
        if message.get("m") == "ask" and name not in self.by_id:
            knobs = message.get("knobs")
            self._take(
                Ask(name, knobs if isinstance(knobs, dict) else {}, bool(message.get("now")), message.get("loader"))
            )
        elif message.get("m") == "drop":
            ask = self.by_id.get(name)
            if ask is not None and ask.state == "queued":
                self.move(ask, "dropped")

    def _take(self, ask: Ask) -> None:
        self.by_id[ask.id] = ask
        try:
            checked = {name: check_value(name, value) for name, value in ask.knobs.items()}
            unfit = [name for name in checked if name not in OF_LOADERS + KERNEL_KNOBS]
            if unfit or not checked:
                raise Refused("%s cannot be changed in a running training" % ", ".join(unfit or ["nothing"]))
            ask.knobs = {name: value for name, value in checked.items() if name in OF_LOADERS}
            ask.kernels = {name: value for name, value in checked.items() if name in KERNEL_KNOBS}
            if ask.kernels and ask.loader is not None:
                raise Refused("%s is no setting of one loader: ask without naming one" % ", ".join(ask.kernels))
            self.foresee(ask)
        except CockpitError as error:
            self.move(ask, "refused", str(error))
            return
        self.waiting.append(ask)
        self.news = True
        self._foretell(ask)  # before anybody looks: what lands now must have been told of
        self.look_ahead()

    def _foretell(self, ask: Ask) -> None:
        found = [tell(ask) for tell in self.foretellers] if not ask.foretold and ask.undoes is None else [None]
        if any(words is None for words in found):
            return
        ask.foretold, ask.note = True, "; ".join(words for words in found if words) or None
        if ask.note is not None:
            self._say(ask)

    def look_ahead(self, again: bool = False) -> None:
        """Sets when the training's thread must look here next: at its next batch, or at a step."""
        waiting, recorder = list(self.waiting), self._recorder
        steps = [int(ask.due[1]) for ask in waiting if ask.due is not None and ask.due[0] == "step"]
        recorder.due_step = min(steps) if steps else -1
        overdue = 0 <= recorder.due_step <= recorder.steps
        recorder.attention = again or overdue or any(ask.now and ask.due is None and ask.knobs for ask in waiting)
        recorder.awaited = recorder.awaited or any(ask.kernels and not ask.knobs for ask in waiting)

    def tick(self, now_ns: int) -> None:
        """Called a few times a second: asks whose time has come want attention at the next batch."""
        for ask in list(self.waiting):
            self._foretell(ask)
            if ask.due is None and ask.state == "queued":
                self._refuse_unfit(ask)  # what nobody could know when it was asked for
            if ask.due is not None and ask.due[0] == "time" and now_ns - self.began_ns >= ask.due[1] * 1e9:
                self._recorder.attention = True

    def _refuse_unfit(self, ask: Ask) -> None:
        try:
            self.foresee(ask)
        except Refused as error:
            self.move(ask, "refused", error.reason)

    def for_loader(self, record: LoaderRecord) -> list[Ask]:
        """What is due for this loader and has not landed on it, in the order it was asked."""
        found = []
        for ask in list(self.waiting):
            if not ask.knobs or record.id in ask.done_on or not self.is_due(ask, record):
                continue
            early = record.role == UNKNOWN and ask.due == ("epoch", 0.0)
            if ask.loader == record.id or (ask.loader is None and (record.role == TRAIN or early)):
                found.append(ask)
        return found

    def is_due(self, ask: Ask, record: LoaderRecord) -> bool:
        """Whether its time has come, at a boundary or batch of this loader."""
        if ask.due is None:
            return True
        when, n = ask.due
        # a loader that does not train has no epochs of its own: the training's count
        own = record.epochs_begun()
        reached = {
            "epoch": own if record.role == TRAIN else max(own, self._recorder.epoch),
            "step": self._recorder.steps,
            "time": (self._recorder.clock() - self.began_ns) / 1e9,
        }
        return bool(reached[when] >= n)

    def give_up(self, reason: str, kernels: bool = False) -> None:
        """Nothing can land any more, or nothing with ``kernels``: whatever waits for it is refused."""
        for ask in list(self.waiting):
            if ask.kernels or not kernels:
                self.move(ask, "refused", reason)

    def forget(self, ask: Ask) -> None:
        """No loader has to take it any more."""
        if ask in self.waiting:
            self.waiting.remove(ask)

    def move(self, ask: Ask, state: str, reason: str | None = None) -> None:
        """The ask is now in ``state``: tell the engine."""
        if ask.undoes is not None:
            self._given_back(ask, *ask.undoes, state)
            return
        ask.state = state
        if state in ("dropped", "refused", "rolled_back"):
            self.forget(ask)
            self.news = True
        self._say(ask, reason)

    def _say(self, ask: Ask, reason: str | None = None) -> None:
        stalled = ask.state == "settling" or (ask.state == "rolled_back" and ask.stall_ns)
        ask.last = {
            "m": "change", "id": ask.id, "state": ask.state, "step": self._recorder.steps,
            "stall_ms": ask.stall_ns / 1e6 if stalled else None, "drain": ask.drain,
            "capacity": ask.capacity, "before": dict(ask.before), "in_force": dict(ask.in_force), "reason": reason,
            "note": ask.note,
        }  # fmt: skip
        if ask.state == "applying":
            ask.last.update(zip(("compile_ns", "graphs", "recompiles"), ask.compiled or self.compiled()))
        self.said.append(ask.last)

    def _given_back(self, back: Ask, failed: Ask, reason: str, state: str) -> None:
        """A loader's part of ``failed`` goes back; that the whole is rolled back is said when all parts have."""
        back.state = state
        if state not in ("settling", "refused", "rolled_back", "dropped") or back.id not in failed.backs:
            return
        self.forget(back)
        failed.backs.discard(back.id)
        failed.drain, failed.capacity = back.drain, back.capacity
        failed.in_force.update(back.in_force)
        if state != "settling":
            failed.kept += ["%s of %s" % (name, back.loader) for name in back.knobs]
        if not failed.backs:
            stays = "; what could not go back stays: %s" % ", ".join(failed.kept) if failed.kept else ""
            self.move(failed, "rolled_back", reason + stays)

    def end(self) -> None:
        """The process ends: nothing goes back any more, and what would have is told as it is."""
        for ask in list(self.waiting):
            if ask.undoes is not None:
                self._given_back(ask, *ask.undoes, "refused")

    def last_words(self) -> list[dict[str, Any]]:
        """The newest message of every change, for an engine that is new or was away."""
        return [ask.last for ask in list(self.by_id.values()) if ask.last is not None]
