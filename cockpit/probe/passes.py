"""How many batches one pass over a loader's data has, told without running more of the script than a ``len``.

Asked by ``batching`` for each loader, and by ``epochs`` for an iterator that goes on from pass to pass. It must never
draw from a sampler, and never ask one whose ``len`` is the script's own.
"""

from __future__ import annotations

from typing import Any

INNER = ("sampler", "batch_sampler")
"""Under these names a sampler keeps the one whose indices it hands on."""


def batches_of(loader: Any) -> int | None:
    """Batches per epoch, where torch's own samplers make them."""
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    if loader._dataset_kind or not _is_torchs(sampler) or not _is_torchs(getattr(sampler, "sampler", sampler)):
        return None
    return len(sampler)


def pass_of(loader: Any) -> int | None:
    """The same; where a sampler of the script's goes over one of torch's, what that has.

    Timm's loader for several epochs repeats its batch sampler for ever, in one iterator, and counts the batches.
    """
    found = batches_of(loader)
    outer = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    if found is not None or loader._dataset_kind or _is_torchs(outer):
        return found
    kept = getattr(outer, "__dict__", {})
    inner = next((kept[name] for name in INNER if _is_torchs(kept.get(name))), None)
    return None if inner is None or not _is_torchs(getattr(inner, "sampler", inner)) else len(inner)


def _is_torchs(sampler: Any) -> bool:
    return type(sampler).__module__.startswith("torch.utils.data.sampler")
