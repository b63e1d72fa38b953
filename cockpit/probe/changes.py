"""Changes on their way: asked by the engine or at the start, applied in the script's thread, reported as found.

``receive`` may run in the probe's thread; everything else is called by the hooks in the thread that iterates the
loader, and only there are loaders touched (through ``swap``). It never says that something is in force that was
not found so, and never applies anything outside the entry of ``__iter__`` and ``__next__``.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Mapping, Optional

from ..model.errors import CockpitError
from ..model.knobs import LOADER_KNOBS, Value, check_value
from .groups import Refused, script_group
from .recorder import Recorder, Setting
from .streams import TRAIN, UNKNOWN, LoaderRecord, Registry, Stream


class Ask:
    """One change. ``due``: None, or ("epoch" | "step" | "time", n). ``done_on``: loaders that have it."""

    def __init__(self, name: str, knobs: Mapping[str, Value], now: bool, loader: Optional[str]) -> None:
        self.id = name
        self.knobs = dict(knobs)
        self.now = now
        self.loader = loader
        self.due: tuple[str, float] | None = None
        self.state = "queued"
        self.done_on: set[str] = set()
        self.before: dict[str, Any] = {}
        self.stall_ns = 0
        self.drain = 0
        self.capacity = 0
        self.in_force: dict[str, Any] = {}
        self.last: dict[str, Any] | None = None


class Changes:
    """All asks of this process. ``news`` is set when a loader changed."""

    def __init__(self, recorder: Recorder, registry: Registry, make_control: Callable[[Any], Any]) -> None:
        self._recorder = recorder
        self._registry = registry
        self._make_control = make_control
        self.moved: deque[dict[str, Any]] = deque()
        """Messages for the engine."""
        self.news = False
        self.began_ns = recorder.clock()
        self.asks: dict[str, Ask] = {}
        self._waiting: list[Ask] = []
        self._start_set: dict[str, Value] = {}
        self._start_loaders: dict[str, dict[str, Value]] = {}
        self._plans: dict[int, tuple[Any, Any]] = {}

    # ---- what is asked ----

    def start(self, told: Mapping[str, Any]) -> None:
        """What start.json says: set from the start, per loader, and the schedule."""
        self._start_set = self._sound(told.get("set") or {})
        for name, knobs in (told.get("loaders") or {}).items():
            self._start_loaders[name] = self._sound(knobs)
        for entry in told.get("at") or ():
            ask = Ask(str(entry["id"]), entry["knobs"], entry["when"] != "epoch", entry.get("loader"))
            ask.due = (entry["when"], float(entry["n"]))
            self._take(ask)

    @staticmethod
    def _sound(knobs: Mapping[str, Any]) -> dict[str, Value]:
        return {name: check_value(name, value) for name, value in knobs.items() if name in LOADER_KNOBS}

    def receive(self, message: Mapping[str, Any]) -> None:
        """An ``ask`` or ``drop`` from the engine; a known id is ignored."""
        name = str(message.get("id"))
        if message.get("m") == "ask" and name not in self.asks:
            self._take(Ask(name, message["knobs"], bool(message.get("now")), message.get("loader")))
        elif message.get("m") == "drop":
            ask = self.asks.get(name)
            if ask is not None and ask.state == "queued":
                self._move(ask, "dropped")

    def _take(self, ask: Ask) -> None:
        self.asks[ask.id] = ask
        try:
            ask.knobs = {name: check_value(name, value) for name, value in ask.knobs.items()}
            unfit = [name for name in ask.knobs if name not in LOADER_KNOBS]
            if unfit or not ask.knobs:
                raise Refused("%s cannot be changed in a running training" % ", ".join(unfit or ["nothing"]))
        except CockpitError as error:
            self._move(ask, "refused", str(error))
            return
        self._waiting.append(ask)
        if ask.due is not None and ask.due[0] == "step":
            soonest = int(ask.due[1])
            self._recorder.due_step = (
                min(soonest, self._recorder.due_step) if self._recorder.due_step >= 0 else soonest
            )
        elif ask.now and ask.due is None:
            self._recorder.attention = True

    def tick(self, now_ns: int) -> None:
        """Called a few times a second: asks whose time has come want attention at the next batch."""
        for ask in self._waiting:
            if ask.due is not None and ask.due[0] == "time" and now_ns - self.began_ns >= ask.due[1] * 1e9:
                self._recorder.attention = True

    def waiting_ids(self) -> list[str]:
        """Changes that have not landed yet."""
        return [ask.id for ask in self._waiting if ask.state == "queued"]

    # ---- where it lands ----

    def _is_due(self, ask: Ask, record: LoaderRecord) -> bool:
        if ask.due is None:
            return True
        when, n = ask.due
        reached = {
            "epoch": record.epochs,
            "step": self._recorder.steps,
            "time": (self._recorder.clock() - self.began_ns) / 1e9,
        }
        return reached[when] >= n

    def _for(self, record: LoaderRecord) -> list[Ask]:
        found = []
        for ask in list(self._waiting):
            if record.id in ask.done_on or not self._is_due(ask, record):
                continue
            early = record.role == UNKNOWN and ask.due == ("epoch", 0.0)
            if ask.loader == record.id or (ask.loader is None and (record.role == TRAIN or early)):
                found.append(ask)
        return found

    def at_boundary(self, stream: Stream, loader: Any, fresh: bool) -> None:
        """Entry of ``__iter__``: plan what this iterator is opened with."""
        record = stream.record
        if fresh:
            self._meet(record, loader)
        asks = self._for(record)
        if record.start_set and record.role not in (TRAIN, UNKNOWN):
            self._put_back(record)
        if not asks and record.group is None and not record.wanted:
            return
        control = self._control(record, loader)
        stream.control = control
        if fresh or record.group is None:
            record.group = self._plan_all(record, control)
        before, landing = control.in_force, []
        for ask in asks:
            try:
                group = control.plan(ask.knobs, base=record.group)
            except Refused as error:
                self._refuse(ask, record, error.reason)
                continue
            self._apply(ask, record, before, group)
            landing.append(ask)
        stream.landing = landing
        self._plans[stream.thread] = (control, record.group)

    def _meet(self, record: LoaderRecord, loader: Any) -> None:
        """A DataLoader object that we have not seen; its place may be known, and then it inherits what was asked."""
        record.control, record.group = None, None
        record.kind = "iterable" if loader._dataset_kind else "map"
        record.batch_size = loader.batch_size
        record.script = script_group(loader)
        if not record.iterators:
            record.start_set = self._start_set
            record.wanted = {**self._start_set, **self._start_loaders.get(record.id, {})}
        record.batches_per_epoch = _safe_length(loader)
        self.news = True

    def _put_back(self, record: LoaderRecord) -> None:
        """Set from the start, but it does not train: back to the script's own settings."""
        own = self._start_loaders.get(record.id, {})
        record.wanted = {k: v for k, v in record.wanted.items() if k not in record.start_set or k in own}
        record.start_set = {}
        if record.control is not None:
            record.group = self._plan_all(record, record.control)

    def _control(self, record: LoaderRecord, loader: Any) -> Any:
        record.control = self._registry.control_of(loader, self._make_control)
        return record.control

    def _plan_all(self, record: LoaderRecord, control: Any) -> Any:
        group = control.script
        for name, value in list(record.wanted.items()):
            if name != "num_workers":
                continue
            group = self._plan_one(record, control, {name: value}, group)
        rest = {name: value for name, value in record.wanted.items() if name != "num_workers"}
        for name, value in rest.items():
            group = self._plan_one(record, control, {name: value}, group)
        return group

    def _plan_one(self, record: LoaderRecord, control: Any, knobs: dict[str, Value], group: Any) -> Any:
        try:
            return control.plan(knobs, base=group)
        except Refused as error:
            for name in knobs:
                record.reasons[name] = error.reason
            return group

    def opener(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What stands in for ``DataLoader.__iter__`` inside the guard: the plan of this thread, or the original."""
        plans = self._plans
        ident = self._recorder.ident

        def __iter__(self: Any) -> Any:
            control, group = plans.pop(ident(), (None, None))
            return original(self) if control is None else control.open(original, group)

        return __iter__

    def concerns(self, stream: Stream) -> bool:
        """Whether anything may land on this stream at its next batch."""
        return stream.trains or any(ask.loader == stream.record.id for ask in self._waiting)

    def at_next(self, stream: Stream, iterator: Any) -> None:
        """Entry of ``__next__`` with something waiting: swap if an ask wants it now."""
        record, loader = stream.record, stream.record.alive()
        if loader is None:
            return
        control = stream.control = self._control(record, loader)
        group = record.group or control.script
        before, landing = control.in_force, []
        for ask in self._for(record):
            if not ask.now:
                continue
            try:
                group = control.plan(ask.knobs, base=group, now=True)
                landing.append(ask)
            except Refused as error:
                self._rather_later(ask, record, control, group, error.reason)
        again = False
        if landing:
            began = self._recorder.clock()
            swap = control.swap(iterator, group)
            stall = self._recorder.clock() - began
            if swap is None:
                again = True
            else:
                self._recorder.start += stall if self._recorder.base is not None else 0
                for ask in landing:
                    ask.stall_ns += stall
                    ask.drain, ask.capacity = swap.drain, swap.capacity
                    self._apply(ask, record, before, group)
                stream.landing = stream.landing + landing
        self._recorder.attention = again or any(a.now and a.due is None for a in self._waiting)
        self._next_due_step()

    def _next_due_step(self) -> None:
        due = [int(a.due[1]) for a in self._waiting if a.due is not None and a.due[0] == "step"]
        self._recorder.due_step = min(due) if due else -1

    def _rather_later(self, ask: Ask, record: LoaderRecord, control: Any, group: Any, reason: str) -> None:
        """It cannot be had now; at the boundary, perhaps."""
        try:
            control.plan(ask.knobs, base=group)
        except Refused as error:
            self._refuse(ask, record, error.reason)
            return
        ask.now = False
        for name in ask.knobs:
            record.reasons[name] = reason
        self.news = True

    def _apply(self, ask: Ask, record: LoaderRecord, before: Any, group: Any) -> None:
        for name in ask.knobs:
            ask.before.setdefault(name, getattr(before, name))
            record.reasons.pop(name, None)
        record.last_change = (ask, dict(record.wanted), before)
        record.wanted.update(ask.knobs)
        record.start_set = {k: v for k, v in record.start_set.items() if k not in ask.knobs}
        record.group = group
        ask.done_on.add(record.id)
        if ask.state == "queued":
            self._move(ask, "applying")
        self._recorder.setting = Setting(ask.id, group.capacity, group.num_workers)
        if not self._unfinished(ask):
            self._forget(ask)

    def _unfinished(self, ask: Ask) -> bool:
        """Whether another training loader still in use has to take this change."""
        if ask.loader is not None:
            return False
        active = [r for r in self._registry.training() if r.open_stream() is not None]
        return any(r.id not in ask.done_on for r in active)

    def _forget(self, ask: Ask) -> None:
        if ask in self._waiting:
            self._waiting.remove(ask)

    # ---- what was found ----

    def looked_at(self, stream: Stream, iterator: Any) -> None:
        """After one of the first batches under a setting: what is really in force, and was anything rolled back?"""
        record, control = stream.record, stream.control
        if control is None:
            if not stream.trains:
                return
            control = stream.control = self._control(record, record.alive())
        if stream.trains and not record.refusals:
            record.refusals = control.refusals()
        self.notices(record, control)
        found = control.in_force_now(iterator)
        workers = control.workers(iterator)
        if (found, workers) != (record.in_force, record.workers):
            record.in_force, record.workers, record.capacity = found, workers, found.capacity
            self.news = True
        setting = self._recorder.setting
        if stream.trains and setting[1:] != (found.capacity, found.num_workers):
            self._recorder.setting = Setting(setting.change, found.capacity, found.num_workers)
        landing, stream.landing = stream.landing, []
        for ask in landing:
            if ask.state != "applying":
                continue
            ask.stall_ns = ask.stall_ns or stream.start_ns
            ask.capacity = found.capacity
            ask.in_force = {name: getattr(found, name) for name in ask.knobs}
            if not self._unfinished(ask):
                self._forget(ask)
                self._move(ask, "settling")

    def notices(self, record: LoaderRecord, control: Any) -> None:
        """Roll-backs that the mechanism made on its own."""
        for notice in control.take_notices():
            record.group = notice.in_force
            if record.last_change is None:
                for name in record.wanted:
                    record.reasons[name] = notice.reason
                record.wanted = {}
            else:
                ask, wanted, _ = record.last_change
                record.wanted, record.last_change = wanted, None
                self._forget(ask)
                ask.in_force = {name: getattr(notice.in_force, name) for name in ask.knobs}
                self._recorder.setting = Setting(
                    ask.id, notice.in_force.capacity, notice.in_force.num_workers
                )
                self._move(ask, "rolled_back", notice.reason)
            self.news = True

    def look_at_queue(self, stream: Stream, iterator: Any) -> tuple[Optional[tuple[int, int]], Optional[str]]:
        """(ready, capacity) of the queue as a batch is about to be asked for, and what the wait will be."""
        record = stream.record
        if stream.control is None:
            loader = record.alive()
            if loader is None:
                return None, None
            stream.control = self._control(record, loader)
        self.notices(record, stream.control)
        queue = stream.control.queue(iterator)
        if queue is None:
            return None, None
        return queue, "starved" if not queue[0] else "hand_over"

    def _refuse(self, ask: Ask, record: LoaderRecord, reason: str) -> None:
        self._forget(ask)
        for name in ask.knobs:
            record.reasons[name] = reason
        self.news = True
        self._move(ask, "refused", reason)

    def _move(self, ask: Ask, state: str, reason: Optional[str] = None) -> None:
        ask.state = state
        if state in ("dropped", "refused"):
            self._forget(ask)
        message = {
            "m": "change", "id": ask.id, "state": state, "step": self._recorder.steps,
            "stall_ms": ask.stall_ns / 1e6 if state == "settling" else None, "drain": ask.drain,
            "capacity": ask.capacity, "before": ask.before, "in_force": ask.in_force, "reason": reason,
        }  # fmt: skip
        ask.last = message
        self.moved.append(message)


def _safe_length(loader: Any) -> Optional[int]:
    """Batches per epoch where torch's own samplers can tell without running any code of the script but ``len``."""
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    for part in (sampler, getattr(sampler, "sampler", None)):
        if part is not None and not type(part).__module__.startswith("torch.utils.data.sampler"):
            return None
    return None if loader._dataset_kind else len(sampler)
