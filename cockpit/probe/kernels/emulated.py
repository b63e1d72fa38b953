"""Lower precision that a CPU or GPU can only emulate: said on autocast's row before anybody tries it.

Asked by ``control`` in the training's thread, about once a second, so the CPU is read once. It must never initialise
a device, and says nothing where nothing can be found out: the measurement has the last word.
"""

from __future__ import annotations

import functools
from typing import Any

CPU_WORDS = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp"),
}
"""What /proc/cpuinfo calls instructions for it, on x86 and on Arm."""


def words_of(torch: Any, device: str, word: str = "bf16") -> str | None:
    """``this CPU has no bf16 instructions …``; None where it has, or nothing is known. ``word``: what is asked for."""
    word = word if word in CPU_WORDS else "bf16"  # fp16 takes a scaler: not everybody's question
    if not _lacks(torch, device, word):
        return None
    what = "CPU" if device == "cpu" else "GPU"
    return "this %s has no %s instructions: torch emulates them, likely slower" % (what, word)


def _lacks(torch: Any, device: str, word: str) -> bool:
    if device == "cpu":
        flags = cpu_flags()
        return bool(flags) and flags.isdisjoint(CPU_WORDS[word])
    if device == "cuda" and word == "bf16":
        # roots on a GPU: the script has initialised it long ago
        return not torch.cuda.is_bf16_supported(including_emulation=False)
    return False


@functools.lru_cache(maxsize=1)
def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """What the first CPU says it can; empty where it does not say."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, words = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    return frozenset(words.split())
    except OSError:
        pass
    return frozenset()
