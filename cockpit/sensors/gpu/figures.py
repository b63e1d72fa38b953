"""An answer of the vendor's library in figures and words. Used by the readers; it never turns "not told" into 0.

Every figure is unverified until somebody has seen its source work on real hardware (``VERIFIED``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.model.gpu import GpuFigures

VERIFIED = False
"""Has anybody compared these figures with real hardware? Only error handling and units are tested so far."""

SOURCE = "NVML"


@dataclass(frozen=True)
class GpuReading:
    """All devices asked for, as of ``at_s`` (the reader's clock; None: nothing was ever read).

    ``trouble``: why there is nothing about any device, in a sentence. ``driver``: the driver's version.
    """

    at_s: float | None = None
    devices: tuple[GpuFigures, ...] = ()
    trouble: str | None = None
    driver: str | None = None


WORDS: Mapping[int | str, str] = {
    "missing": "the package nvidia-ml-py is not installed beside cockpit",
    3: "not supported by this device",
    4: "not permitted to this user",
    6: "the driver does not know this device",
    9: "the NVIDIA driver is not loaded; the training goes on",
    10: "the device did not answer in time",
    12: "no NVIDIA driver library (libnvidia-ml.so.1) here, so no GPU is shown; a container needs access to the GPU",
    13: "this driver is too old to tell",
    15: "the device has fallen off the bus",
    16: "the device needs a reset",
    17: "the operating system refused",
    18: "driver and library differ in version, as after an update without a restart; the training goes on",
    999: "the driver gives no reason",
}

THROTTLING: Mapping[int, str] = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "too hot (driver)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
"""Reasons that slow a busy device down; idling and clocks that a person has set are none."""

GONE = (15, 16)


def error_words(error: int | str) -> str:
    """One sentence for an error of the library; the number where it is none that we know."""
    return WORDS.get(error, f"error {error} of the driver's library")


def throttling_words(bits: int | None) -> tuple[str, ...] | None:
    """Bits of the library as words."""
    return None if bits is None else tuple(word for bit, word in THROTTLING.items() if bits & bit)


def reading_of(answer: Mapping[str, Any], at_s: float) -> GpuReading:
    """An answer of the child ``nvml``."""
    error = answer["error"]
    return GpuReading(
        at_s,
        tuple(_device(told) for told in answer["devices"]),
        None if error is None else error_words(error),
        answer["driver"],
    )


def _device(told: Mapping[str, Any]) -> GpuFigures:
    figures = dict(told["figures"])
    throttled = throttling_words(figures.pop("clock_reasons", None))
    error, mig = told["error"], bool(told["mig"])
    return GpuFigures(
        uuid=told["seen_as"] or told["uuid"],
        name=told["name"],
        mig=mig,
        throttled=throttled,
        trouble=None if error is None else error_words(error),
        gone=error in GONE,
        missing={
            name: "N/A (MIG)" if mig and number == 3 else error_words(number) for name, number in told["errors"].items()
        },
        source=SOURCE,
        verified=VERIFIED,
        **figures,
    )
