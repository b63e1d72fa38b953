"""The scripted training as one that calls ``cockpit.session``: it hands over at an epoch's end, and goes on from there.

Used by ``scripted --session``. What it hands over is in ``go`` itself: the epoch and the step.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from cockpit.model.names import ENV_RUN
from cockpit.probe import lives

from . import scripted_files
from .scripted import Trainer

HELD_S_AT_MOST = 300.0


class Resumable(Trainer):
    """Says so to the engine; imports no torch, so that the process that waits for its turn need not either."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        super().__init__(chosen)
        go = lives.read(lives.current(os.environ[ENV_RUN]), lives.GO)
        self.epoch, self.step = int(go.get("epoch") or 0), int(go.get("step") or 0)
        self.change = self.start.get("change")
        self.wanted: dict[str, Any] | None = None
        handed = sum(lives.HANDOFF in lives.read(folder, lives.GO) for _, folder in lives.folders(os.environ[ENV_RUN]))
        self.held = self.epoch + 2 if handed < chosen.hold else None
        name = os.environ.get("WANDB_RUN_ID", "nobody")
        print(f"begins at epoch {self.epoch} step {self.step} as {name}", flush=True)

    def greeting(self) -> dict[str, Any]:
        """``set_early``: as if it set what torch reads."""
        return {**super().greeting(), "set_early": ["SCRIPTED"]}

    def _say_loaders(self) -> None:
        super()._say_loaders()
        every = self.start.get("handoff_every", 0)
        told = {"names": ["model"], "epochs": self.chosen.epochs, "epoch": self.epoch, "every": every, "reason": None}
        self.line.say({"m": "session", **told})
        if self.chosen.wandb is not None:
            self.line.say({"m": "identity", "env": {"WANDB_RUN_ID": self.chosen.wandb, "WANDB_RESUME": "allow"}})

    def take(self, message: dict[str, Any]) -> None:
        """``handoff`` and ``handoff_drop``."""
        if message.get("m") == "handoff":
            self.wanted = message
        elif message.get("m") == "handoff_drop" and self.wanted and self.wanted["id"] == message["id"]:
            self.wanted = None

    def between(self, epoch: int) -> None:
        """Hand over, if that is wanted and an epoch is left."""
        self._hear()
        until_s = time.monotonic() + HELD_S_AT_MOST
        while epoch == self.held and self.wanted is None and time.monotonic() < until_s:
            time.sleep(0.01)
            self._hear()
        every = self.start.get("handoff_every", 0)
        if every and epoch % every == 0:
            scripted_files.hand_off(epoch, self.chosen.epochs, self.step)
            known = {"id": None, "state": "written", "epoch": epoch, "step": self.step, "bytes": 1, "seconds": 0.0}
            self.line.say({"m": "handoff", **known})
        if self.wanted is None or epoch >= self.chosen.epochs:
            return
        wanted, self.wanted = self.wanted, None
        left = self.chosen.epochs - epoch
        go = {"handoff": "scripted", "epoch": epoch, "step": self.step, "epochs_left": left}
        if lives.claim_go(wanted["life"], go):
            self._say_tick()
            self.line.say({"m": "handoff", "id": wanted["id"], "state": "gone", "epoch": epoch, "step": self.step})
            print(f"hands over at epoch {epoch} step {self.step}", flush=True)
            sys.exit(0)
