"""What a loader was at its ``__iter__``: enough to make iterators of torch's own when the loader itself is gone.

Taken by the control, kept on the iterators that the script holds. Taking one draws nothing and iterates nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from .groups import Group


class Recipe(NamedTuple):
    """A loader as it was at its ``__iter__``: all that an iterator needs, and not the loader, which may be gone."""

    iterable: bool
    index_sampler: Any
    fields: dict[str, Any]

    def view(self, group: Group, generator: Any, index_sampler: Any) -> SimpleNamespace:
        """What torch's iterator classes take for a loader."""
        fields = dict(self.fields, **group._asdict())
        # torch has no pinning without an accelerator: it would only warn about it, again and again
        fields["timeout"] = self.fields["timeout"] if group.num_workers else 0
        return SimpleNamespace(**fields, generator=generator, _index_sampler=index_sampler, pin_memory_device="")


RECIPE_FIELDS = (
    "dataset", "_dataset_kind", "_IterableDataset_len_called", "_auto_collation", "drop_last", "collate_fn",
    "timeout", "multiprocessing_context", "worker_init_fn",
)  # fmt: skip


def recipe_of(loader: Any, iterable_kind: Any) -> Recipe:
    """The recipe of ``loader`` as it is now; draws nothing, iterates nothing."""
    fields = {name: getattr(loader, name) for name in RECIPE_FIELDS}
    return Recipe(loader._dataset_kind == iterable_kind, loader._index_sampler, fields)
