"""The child that talks to NVML: run as ``python -I nvml.py`` by ``reader``, one JSON request a line, one answer a line.

The vendor's library may hang, or bring its process down when a device falls off the bus, so this process holds
nothing else and ends with its stdin. It decides what is asked again and when; it must never answer 0 for what the
library did not tell: such a figure is None, and its error stands beside it.

Request: ``{"at_s": 12.5, "uuids": ["GPU-…"]}``: the asker's clock, and the devices (null: all there are).
Before each device it says ``{"at": uuid}``, so that whoever finds this process dead knows which device killed it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER, LIBRARY, NO_FUNCTION = 3, 4, 6, 9, 12, 13
LOST, RESET, MISMATCH, UNKNOWN = 15, 16, 18, 999

NEVER = float("inf")
SLOW_S = 30.0
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)

AGAIN_S = {NOT_SUPPORTED: NEVER, NO_PERMISSION: NEVER, NO_FUNCTION: NEVER, LIBRARY: NEVER, LOST: NEVER, RESET: NEVER}
AGAIN_S |= {NOT_FOUND: SLOW_S, DRIVER: SLOW_S, MISMATCH: SLOW_S, UNKNOWN: SLOW_S}
"""When something that failed so is asked again; anything else backs off."""


@dataclass
class Retry:
    """Whether a thing may be asked now. ``error`` is its last one, None while all is well."""

    error: int | None = None
    not_before_s: float = 0.0
    failures: int = 0

    def failed(self, error: int, now_s: float) -> None:
        """Remember it, and when to ask again."""
        wait_s = AGAIN_S.get(error, BACK_OFF_S[min(self.failures, len(BACK_OFF_S) - 1)])
        self.error, self.not_before_s, self.failures = error, now_s + wait_s, self.failures + 1

    def worked(self) -> None:
        """All is well again."""
        self.error, self.not_before_s, self.failures = None, 0.0, 0


@dataclass
class Device:
    """One device asked for; ``figures`` has a Retry for each function of the library."""

    handle: Any = None
    name: str | None = None
    uuid: str | None = None
    mig: bool = False
    whole: Retry = field(default_factory=Retry)
    figures: dict[str, Retry] = field(default_factory=dict)


def number(value: Any) -> int | None:
    """All bits set means "not available" in this library, in 32 or 64 bits."""
    found = int(value)
    return None if found in (-1, 2**32 - 1, 2**64 - 1) else found


def divided(value: Any, by: float) -> float | None:
    """The number in larger units."""
    found = number(value)
    return None if found is None else found / by


class Nvml:
    """``library`` is the ``pynvml`` module, ``say`` sends a message. The clock comes with each question."""

    def __init__(self, library: Any, say: Callable[[dict[str, Any]], None]) -> None:
        self._library = library
        self._say = say
        self._now_s = 0.0
        self._start = Retry()
        self._began = False
        self._driver: str | None = None
        self._devices: dict[str, Device] = {}

    def answer(self, uuids: list[str] | None, now_s: float) -> dict[str, Any]:
        """All that can be told at ``now_s`` about these devices."""
        self._now_s = now_s
        if not self._has_begun():
            return {"error": self._start.error, "driver": None, "devices": []}
        try:
            wanted = self._all_uuids() if uuids is None else uuids
        except self._library.NVMLError as error:
            return {"error": error.value, "driver": self._driver, "devices": []}
        return {"error": None, "driver": self._driver, "devices": [self._tell(uuid) for uuid in wanted]}

    def _has_begun(self) -> bool:
        if not self._began and self._now_s >= self._start.not_before_s:
            try:
                self._library.nvmlInit()
                self._began = True
                self._start.worked()
                self._driver = self._library.nvmlSystemGetDriverVersion()
            except self._library.NVMLError as error:
                # the version alone is no reason to do without the rest
                if not self._began:
                    self._start.failed(error.value, self._now_s)
        return self._began

    def _all_uuids(self) -> list[str]:
        library = self._library
        handles = (library.nvmlDeviceGetHandleByIndex(at) for at in range(library.nvmlDeviceGetCount()))
        return [library.nvmlDeviceGetUUID(handle) for handle in handles]

    def _tell(self, uuid: str) -> dict[str, Any]:
        device = self._devices.setdefault(uuid, Device())
        told: dict[str, Any] = {"uuid": uuid, "figures": {}, "errors": {}}
        if self._now_s >= device.whole.not_before_s:
            self._say({"at": uuid})
            self._read(uuid, device, told)
        return told | {"name": device.name, "seen_as": device.uuid, "mig": device.mig, "error": device.whole.error}

    def _read(self, uuid: str, device: Device, told: dict[str, Any]) -> None:
        try:
            if device.handle is None:
                device.handle, device.uuid = self._find(uuid)
                device.mig = str(device.uuid).startswith("MIG-")
            device.whole.worked()
        except self._library.NVMLError as error:
            device.whole.failed(error.value, self._now_s)
            return
        for name, ask in ASKS.items():
            retry = device.figures.setdefault(name, Retry())
            if self._now_s >= retry.not_before_s:
                try:
                    told["figures"] |= ask(self._library, device.handle)
                    device.name = told["figures"].pop("name", device.name)
                    retry.worked()
                except self._library.NVMLError as error:
                    if error.value in (LOST, RESET):
                        # nothing that was read a moment ago describes a device that is gone
                        told["figures"], told["errors"] = {}, {}
                        device.whole.failed(error.value, self._now_s)
                        return
                    retry.failed(error.value, self._now_s)
            if retry.error is not None:
                told["errors"][name] = retry.error

    def _find(self, uuid: str) -> tuple[Any, str]:
        """The handle, and the name it was found by: the training does not say whether its device is a slice."""
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        tries = [uuid] if uuid != bare else []
        tries += [name for name in (f"GPU-{bare}", f"MIG-{bare}") if name != uuid]
        for name in tries[:-1]:
            try:
                return self._library.nvmlDeviceGetHandleByUUID(name), name
            except self._library.NVMLError as error:
                if error.value not in (NOT_FOUND, 2):
                    raise
        return self._library.nvmlDeviceGetHandleByUUID(tries[-1]), tries[-1]


def ask_utilisation(library: Any, handle: Any) -> dict[str, Any]:
    """Share of the last 1/6 to 1 s in which some kernel ran: not how much of the device it used."""
    return {"kernel_active_share": divided(library.nvmlDeviceGetUtilizationRates(handle).gpu, 100.0)}


def ask_memory(library: Any, handle: Any) -> dict[str, Any]:
    """Of the whole device, all its processes; without the driver's own reserve where the driver can tell."""
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2)
    except library.NVMLError as error:
        if error.value != NO_FUNCTION:
            raise
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": number(memory.used), "memory_total_bytes": number(memory.total)}


def ask_throttling(library: Any, handle: Any) -> dict[str, Any]:
    """A bit for each reason why the clocks are lower than they could be."""
    try:
        return {"clock_reasons": number(library.nvmlDeviceGetCurrentClocksEventReasons(handle))}
    except library.NVMLError as error:
        if error.value != NO_FUNCTION:
            raise
    return {"clock_reasons": number(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))}


ASKS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "name": lambda library, handle: {"name": library.nvmlDeviceGetName(handle)},
    "utilisation": ask_utilisation,
    "memory": ask_memory,
    "power": lambda library, handle: {"power_w": divided(library.nvmlDeviceGetPowerUsage(handle), 1000.0)},
    "power_limit": lambda library, handle: {
        "power_limit_w": divided(library.nvmlDeviceGetEnforcedPowerLimit(handle), 1000.0)
    },
    "temperature": lambda library, handle: {
        "temperature_c": number(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))
    },
    "clock": lambda library, handle: {
        "sm_clock_mhz": number(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))
    },
    "clock_limit": lambda library, handle: {
        "sm_clock_max_mhz": number(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM))
    },
    "throttling": ask_throttling,
}


def requests() -> Iterator[dict[str, Any]]:
    """What the parent asks, until it closes our stdin (or dies)."""
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    """Answer until stdin ends."""
    # whatever the vendor's library prints must not stand between our lines
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")

    try:
        import pynvml
    except ImportError:
        for _ in requests():
            say({"error": "missing", "driver": None, "devices": []})
        return
    nvml = Nvml(pynvml, say)
    for request in requests():
        say(nvml.answer(request["uuids"], request["at_s"]))


if __name__ == "__main__":
    main()
