"""A scripted training: speaks the probe's wire with figures that follow from its options alone, without torch.

Started as the training's command (``python -m cockpit.engine.scripted --epochs 3``) by tests and by work on the screen.
It takes changes and settles them as the real probe would; it must never be mistaken for a measurement.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from cockpit.model.names import ENV_LIFE, ENV_RUN, ENV_SOCKET, SCHEMA, START_FILE
from cockpit.probe import lives
from cockpit.probe.leaving import leave_word, place_of

from . import scripted_files
from .scripted_line import Line
from .scripted_options import options

LOADER = "train.py:41"
SCRIPT = {
    "num_workers": 0,
    "prefetch_factor": None,
    "pin_memory": False,
    "persistent_workers": False,
    "in_order": True,
}
TICK_S = 0.2
BLOCK_S = 0.5
STALL_MS = 90.0


class Trainer:
    """The scripted loop. All figures come from ``step_parts``; the clock only paces them."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.line = Line(None if chosen.silent else os.environ.get(ENV_SOCKET))
        self.knobs: dict[str, Any] = dict(SCRIPT)
        self.asked: dict[str, dict[str, Any]] = {}
        self.seen: set[str] = set()
        self.refuse = dict(item.split("=", 1) for item in chosen.refuse)
        self.start = self._read_start()
        self.step = self.epoch = self.in_epoch = 0
        if chosen.resume is not None:
            self.step, self.epoch = scripted_files.load(chosen.resume)
            print(f"resumes at epoch {self.epoch} step {self.step}", flush=True)
        self.change: str | None = None
        self.pause: str | None = None
        self.samples_by_epoch: list[int] = []
        self.tick: dict[str, float] = {}
        self.block: dict[str, float] = {}
        self.told: dict[str, dict[str, Any]] = {}
        self.ticked_s = time.monotonic()
        self.began_s = time.monotonic()

    def _read_start(self) -> dict[str, Any]:
        try:
            folder = os.environ.get(ENV_LIFE) or os.environ.get(ENV_RUN, "")
            with open(os.path.join(folder, START_FILE), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def step_parts(self) -> dict[str, float]:
        """Nanoseconds of one step by phase under the present knobs."""
        workers = self.knobs["num_workers"]
        model = self.chosen.model_ms * 1e6
        load = self.chosen.load_ms * 1e6
        wait = load if workers == 0 else max(0.2e6, load / workers - model)
        return {"wait_ns": wait, "start_ns": 0.0, "forward_ns": 0.3 * model, "backward_ns": 0.55 * model,
                "optimizer_ns": 0.1 * model, "wall_ns": wait + model}  # fmt: skip

    def run(self) -> None:
        """All epochs."""
        self._hear()
        self._set_from_start()
        for epoch in range(self.epoch, self.chosen.epochs):
            self.epoch = epoch
            self._land(boundary=True)
            wall_ns = 0.0
            for in_epoch in range(1, self.chosen.steps + 1):
                self.in_epoch = in_epoch
                self._land(boundary=False)
                wall_ns += self._one_step()
            served = self.chosen.steps * self.chosen.batch
            self.samples_by_epoch = [*self.samples_by_epoch, served][-64:]
            self.line.say({"m": "epoch", "loader": LOADER, "epoch": self.epoch, "steps": self.chosen.steps,
                           "samples": served, "wall_ns": wall_ns, "start_ns": 0})  # fmt: skip
            self._say_loaders()
            self.between(epoch + 1)
        self._say_tick()

    def between(self, epoch: int) -> None:
        """Before epoch ``epoch`` begins."""

    def take(self, message: dict[str, Any]) -> None:
        """A message that is no change."""

    def greeting(self) -> dict[str, Any]:
        """What hello says beside the rest."""
        return {"env": {name: os.environ.get(name) for name in self.start.get("env", ())}}

    def _one_step(self) -> float:
        parts = self.step_parts()
        time.sleep(parts["wall_ns"] / 1e9 / self.chosen.speed)
        self.step += 1
        if not self.block and not self.tick:
            lives.note_training(os.environ.get(ENV_LIFE) or os.environ.get(ENV_RUN, ""))
        if os.environ.get(ENV_LIFE):
            lives.mark(os.environ[ENV_LIFE], lives.STEPPED)
        for sums in (self.tick, self.block):
            for name, value in (*parts.items(), ("steps", 1), ("samples", self.chosen.batch)):
                sums[name] = sums.get(name, 0) + value
        self._may_crash()
        if self.chosen.save_every and self.step % self.chosen.save_every == 0:
            scripted_files.save(self.step, self.epoch)
        every = self.chosen.print_every
        if every and self.step % every == 0:
            print(f"epoch {self.epoch} step {self.step} loss {1.0 / (1.0 + 0.01 * self.step):.4f}", flush=True)
        if time.monotonic() - self.ticked_s >= TICK_S:
            self._hear()
            self._say_tick()
        self._stand_still()
        if self.block["steps"] >= 10 and self.block["wall_ns"] >= BLOCK_S * 1e9:
            self._say_block()
        return parts["wall_ns"]

    def _may_crash(self) -> None:
        name, _, value = (self.chosen.crash_if or "").partition("=")
        if self.step == self.chosen.crash_at and scripted_files.lives_so_far() < self.chosen.crash_times:
            if self.chosen.crash_by == "raise":
                raise RuntimeError("a bad batch")
            os.kill(os.getpid(), signal.SIGKILL)
        if name and str(self.knobs.get(name)) == value:
            self._say_tick()
            os.kill(os.getpid(), signal.SIGKILL)

    def _stand_still(self) -> None:
        """Until it is told to go on."""
        name = self.pause
        while self.pause is not None:
            self.line.say({"m": "pause", "id": name, "state": "paused", "step": self.step})
            self._say_tick("paused")
            time.sleep(TICK_S)
            self._hear()
        if name is not None:
            self.line.say({"m": "pause", "id": name, "state": "over", "step": self.step})

    def _hear(self) -> None:
        for message in self.line.take():
            if message.get("m") in ("pause", "resume"):
                self.pause = message["id"] if message["m"] == "pause" else None
            if message.get("m") == "ask" and message["id"] not in self.seen:
                self.seen.add(message["id"])
                self.asked[message["id"]] = message
            elif message.get("m") == "drop" and self.asked.pop(message["id"], None):
                self._tell({"m": "change", "id": message["id"], "state": "dropped", "step": self.step})
            else:
                self.take(message)
        if self.line.is_new:
            self.line.is_new = False
            self.line.say({"m": "hello", "schema": SCHEMA, "pid": os.getpid(), "ppid": os.getppid(), "rank": None,
                           "world": None, "python": sys.version.split()[0], "torch": "scripted", "argv": sys.orig_argv,
                           "accelerator": None, "t_ns": time.perf_counter_ns(), "trains": True, "off": {},
                           **self.greeting()})  # fmt: skip
            self._say_loaders()
            for move in self.told.values():
                self.line.say(move)

    def _set_from_start(self) -> None:
        named = self.start.get("loaders", {}).get(LOADER, {})
        self.knobs = self._with({**self.start.get("set", {}), **named})
        for item in self.start.get("at", ()):
            self.asked[item["id"]] = {**item, "now": item["when"] != "epoch"}

    def _is_due(self, ask: dict[str, Any], boundary: bool) -> bool:
        reached = {"epoch": self.epoch, "step": self.step, "time": time.monotonic() - self.began_s}
        if "when" in ask and reached[ask["when"]] < ask["n"]:
            return False
        return boundary or bool(ask["now"])

    def _land(self, boundary: bool) -> None:
        for change, ask in list(self.asked.items()):
            if self._is_due(ask, boundary):
                del self.asked[change]
                self._apply(change, ask["knobs"])

    def _apply(self, change: str, knobs: dict[str, Any]) -> None:
        told = {"m": "change", "id": change, "step": self.step}
        reason = next((self.refuse[name] for name in knobs if name in self.refuse), None)
        if reason is not None:
            self._tell({**told, "state": "refused", "reason": reason})
            return
        self._tell({**told, "state": "applying"})
        before, old_capacity = self.knobs, self._capacity()
        if self.chosen.roll_back is not None:
            self._tell({**told, "state": "rolled_back", "reason": self.chosen.roll_back})
            return
        self._say_block()
        self.knobs = self._with(knobs)
        self.change = change
        time.sleep(STALL_MS / 1e3 / self.chosen.speed)
        self._tell({**told, "state": "settling", "stall_ms": STALL_MS, "drain": old_capacity,
                    "capacity": self._capacity(), "before": {name: before[name] for name in knobs},
                    "in_force": {name: self.knobs[name] for name in knobs}})  # fmt: skip
        self._say_loaders()

    def _tell(self, move: dict[str, Any]) -> None:
        """Of a change; whoever has not heard it, as an engine that was killed meanwhile, hears it again."""
        self.told[move["id"]] = move
        self.line.say(move)

    def _with(self, knobs: dict[str, Any]) -> dict[str, Any]:
        """The loader's knobs are one coupled group: without workers there is no prefetch and no persistence."""
        wanted = {name: SCRIPT[name] if value == "script" else value for name, value in knobs.items()}
        merged = {**self.knobs, **wanted}
        if not merged["num_workers"]:
            return {**merged, "prefetch_factor": None, "persistent_workers": False}
        return {**merged, "prefetch_factor": merged["prefetch_factor"] or 2}

    def _capacity(self) -> int:
        return int(self.knobs["num_workers"] * (self.knobs["prefetch_factor"] or 0))

    def _say_loaders(self) -> None:
        reports = [
            {"name": name, "script": SCRIPT[name], "in_force": value, "can": name not in self.refuse,
             "can_now": name not in self.refuse, "reason": self.refuse.get(name)}
            for name, value in self.knobs.items()
        ]  # fmt: skip
        self.line.say({"m": "loaders", "loaders": [{
            "id": LOADER, "role": "train", "kind": "map", "epochs": len(self.samples_by_epoch),
            "steps_per_epoch": self.chosen.steps, "batch_size": self.chosen.batch, "knobs": reports, "workers": [],
            "capacity": self._capacity(), "boundaries": self.epoch > 0, "samples_by_epoch": self.samples_by_epoch,
            "epoch_start_ms": 0.0}]})  # fmt: skip

    def _say_tick(self, doing: str | None = None) -> None:
        now = time.monotonic()
        capacity = self._capacity()
        starved = self.knobs["num_workers"] * self.chosen.model_ms < self.chosen.load_ms
        self.line.say({
            "m": "tick", "t_ns": time.perf_counter_ns(), "span_ns": int((now - self.ticked_s) * 1e9),
            "step": self.step, "epoch": self.epoch, "step_in_epoch": self.in_epoch, "optimizer_steps": self.step,
            **{"steps": 0, "samples": 0, **{name: int(value) for name, value in self.tick.items()}},
            "doing": doing or ("loader" if starved else "forward"), "doing_ns": 1_000_000,
            "queue": [0 if starved else capacity, capacity] if capacity else None,
            "wait_kind": "starved" if starved else None})  # fmt: skip
        self.tick, self.ticked_s = {}, now

    def _say_block(self) -> None:
        if self.block.get("steps", 0) >= 10:
            sums = {name: int(value) for name, value in self.block.items()}
            self.line.say({"m": "block", "step": self.step, "epoch": self.epoch, "change": self.change,
                           "capacity": self._capacity(), **sums})  # fmt: skip
        self.block = {}


def main() -> None:
    """Train as told by the command line, end as told by it."""
    chosen = options()
    if chosen.save_s is not None:

        def save(number: int, frame: FrameType | None) -> None:
            print("saving", flush=True)
            time.sleep(chosen.save_s)
            print("saved", flush=True)
            sys.exit(128 + number if chosen.stop_status is None else chosen.stop_status)

        signal.signal(signal.SIGTERM, save)
    name, _, status = (chosen.fail_if or "").partition("=")
    if name and os.environ.get(name):
        sys.exit(int(status))
    atexit.register(leave_word, place_of(os.environ), trains=True)
    trainer = Trainer
    if chosen.session:
        from cockpit.engine.scripted_session import Resumable

        trainer = Resumable
    trainer(chosen).run()
    if chosen.exit < 0:
        os.kill(os.getpid(), -chosen.exit)
    sys.exit(chosen.exit)


if __name__ == "__main__":
    main()
