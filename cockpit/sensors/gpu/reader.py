"""Keeps the child that asks NVML, and answers at once with what it said last. Called by the engine and by ``doctor``.

The child may crash or hang: it is started again after a growing pause, and a device that killed it is left out for a
while, so that the healthy ones stay. A reading never blocks and never claims that an old figure is a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from cockpit.model.gpu import GpuFigures
from cockpit.sensors.gpu.figures import GpuReading, reading_of

CHILD = (sys.executable, "-I", str(Path(__file__).with_name("nvml.py")))
PERIOD_S = 1.0
ANSWER_S_AT_MOST = 10.0
"""A child that says nothing for so long hangs: it is killed."""
OLD_S = 15.0
"""Figures older than this are not shown any more."""
RESTART_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
CALM_S = 60.0
"""A child that lived so long has earned short pauses again."""


class GpuReader(Protocol):
    """Whatever can say how the accelerators are doing."""

    def read(self, now_s: float, uuids: Sequence[str]) -> GpuReading:
        """What is known at ``now_s`` (a clock that only goes on) of these devices, as the training names them."""
        ...

    def close(self) -> None:
        """End whatever was started."""
        ...


class NvmlReader:
    """``command`` starts the child; ``uuids`` None in ``read`` means every device of the machine."""

    def __init__(self, command: Sequence[str] = CHILD, period_s: float = PERIOD_S) -> None:
        self._command = tuple(command)
        self._period_s = period_s
        self._child: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0
        self._asked_s: float | None = None
        self._next_s = 0.0
        self._at: str | None = None
        self._got = b""
        self._falls = 0
        self._fallen: str | None = None
        self._spared: dict[str, tuple[float, int]] = {}
        self._last = GpuReading()

    def read(self, now_s: float, uuids: Sequence[str] | None) -> GpuReading:
        """See ``GpuReader``; asks for the next figures where they are due."""
        if uuids is not None and not uuids:
            self.close()
            self._last = GpuReading()
            return self._last
        self._listen(now_s)
        if self._child is not None and self._asked_s is not None and now_s - self._asked_s > ANSWER_S_AT_MOST:
            self._fall(now_s, "hung")
        if self._asked_s is None and now_s >= self._next_s:
            self._ask(now_s, uuids)
        return self._as_of(now_s)

    def _as_of(self, now_s: float) -> GpuReading:
        last = self._last
        if self._fallen is not None:
            again = max(0.0, self._next_s - now_s)
            last = replace(last, trouble=f"the reader of the GPU {self._fallen}; it is started again in {again:.0f} s")
        if last.at_s is None or now_s - last.at_s <= OLD_S:
            return last
        old = f"nothing heard for {now_s - last.at_s:.0f} s"
        return replace(
            last, devices=tuple(GpuFigures(one.uuid, one.name, one.mig, trouble=old) for one in last.devices)
        )

    def _ask(self, now_s: float, uuids: Sequence[str] | None) -> None:
        if self._child is None and not self._start(now_s):
            return
        child = self._child
        assert child is not None and child.stdin is not None
        spared = {uuid for uuid, (until_s, _) in self._spared.items() if now_s < until_s}
        wanted = None if uuids is None else [uuid for uuid in uuids if uuid not in spared]
        self._asked_s, self._next_s = now_s, now_s + self._period_s
        try:
            child.stdin.write(json.dumps({"at_s": now_s, "uuids": wanted}).encode() + b"\n")
            child.stdin.flush()
        except OSError:
            self._fall(now_s, "has crashed")

    def _start(self, now_s: float) -> bool:
        self._got, self._at, self._began_s = b"", None, now_s
        try:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
            )
        except OSError as error:
            self._fall(now_s, f"cannot be started ({error.strerror})")
            return False
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        return True

    def _listen(self, now_s: float) -> None:
        while self._child is not None:
            assert self._child.stdout is not None
            try:
                piece = os.read(self._child.stdout.fileno(), 65536)
            except BlockingIOError:
                return
            if not piece:
                self._fall(now_s, "has crashed")
                return
            *lines, self._got = (self._got + piece).split(b"\n")
            for line in lines:
                try:
                    self._hear(json.loads(line), now_s)
                except (ValueError, KeyError, TypeError):
                    self._fall(now_s, "has lost its way")
                    return

    def _hear(self, message: dict[str, Any], now_s: float) -> None:
        if "at" in message:
            self._at = message["at"]
            return
        self._at, self._asked_s, self._fallen = None, None, None
        if now_s - self._began_s > CALM_S:
            self._falls = 0
        heard = reading_of(message, now_s)
        spared = tuple(
            GpuFigures(uuid, trouble="the reader crashed while it asked this device")
            for uuid, (until_s, _) in self._spared.items()
            if now_s < until_s
        )
        self._last = replace(heard, devices=heard.devices + spared)

    def _fall(self, now_s: float, how: str) -> None:
        if self._at is not None:
            times = self._spared.get(self._at, (0.0, 0))[1]
            self._spared[self._at] = (now_s + RESTART_S[min(times + 4, len(RESTART_S) - 1)], times + 1)
        self.close()
        self._fallen = how
        self._next_s = now_s + RESTART_S[min(self._falls, len(RESTART_S) - 1)]
        self._falls += 1

    @property
    def waiting(self) -> bool:
        """Whether a question has not been answered yet."""
        return self._asked_s is not None

    def wait(self, at_most_s: float) -> None:
        """Return as soon as the child says something."""
        if self._child is not None and self._child.stdout is not None:
            select.select([self._child.stdout], [], [], at_most_s)

    def close(self) -> None:
        """End the child; one that a driver holds in the kernel is not waited for."""
        child, self._child, self._asked_s = self._child, None, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)


def read_once(timeout_s: float, command: Sequence[str] = CHILD) -> GpuReading:
    """Every device of the machine, once, waiting at most ``timeout_s`` seconds. For ``doctor``."""
    reader = NvmlReader(command)
    until_s = time.monotonic() + timeout_s
    try:
        while True:
            now_s = time.monotonic()
            reading = reader.read(now_s, None)
            if reading.at_s is not None or reading.trouble or now_s > until_s:
                return reading
            reader.wait(0.2)
    finally:
        reader.close()
