"""What a DataLoader carries from one process into the next: its generators' states, and that its workers had begun.

A loader is known by where the script made it, and as the how-manieth there: before the loop over epochs, or inside one
of them. Called by ``live`` and at each ``__iter__`` once the script has opted in. It must never set a generator that an
uninterrupted run would have made anew in that epoch, and never keep a loader alive.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Callable

from ..registry import Registry

Key = tuple[str, bool, int]
"""(place, whether made inside an epoch, how many had been made there before it)"""


class Seen:
    """One loader's generators as last seen at its ``__iter__``; ``first``: their states at the first one."""

    def __init__(self, generators: list[Any], former: Seen | None) -> None:
        self.generators = generators
        self.first = [None if each is None else each.get_state() for each in generators]
        same = former is not None and all(a is b for a, b in zip(former.generators, generators))
        self.anew = None if former is None else not same
        """Whether the script makes new generators in each epoch; None: nobody can tell yet."""


class LoaderStates:
    """Of one process. ``on_opening`` is called by the hooks."""

    def __init__(self, torch: Any, registry: Registry) -> None:
        self._torch = torch
        self._registry = registry
        self._seen: dict[Key, Seen] = {}
        self._former: dict[Key, Seen] = {}
        self._rows: dict[Key, dict[str, Any]] = {}
        self._put: list[Any] = []

    def on_opening(self, loader: Any) -> None:
        """Entry of ``DataLoader.__iter__``."""
        key = self._registry.key_of(loader)
        if key is None:
            return
        generators = self._generators(loader)
        seen = self._seen.get(key)
        if seen is None or seen.generators != generators:
            seen = self._seen[key] = Seen(generators, self._former.get(key))  # as they begin, before a state is put
        if self._rows and key[1]:
            self._put_late(key, seen)

    def epoch_over(self) -> None:
        """What was made inside of the epoch that has ended is only remembered to compare with the next."""
        inside = {key: seen for key, seen in self._seen.items() if key[1]}
        self._former.update(inside)
        for key in inside:
            del self._seen[key]

    # ---- for a hand-off ----

    def taken(self) -> list[dict[str, Any]]:
        """One row for each loader that has generators of its own, or persistent workers that have begun; rows of the
        process before for what this one has not come to yet."""
        seen = {**self._former, **self._seen}
        begun = set()
        for loader, key, met in self._registry.living():
            if key not in seen:
                seen[key] = Seen(self._generators(loader), self._former.get(key))
            if met and not key[1] and loader.persistent_workers and loader.num_workers:
                begun.add(key)
        return [
            {
                "key": key, "states": [None if each is None else each.get_state() for each in one.generators],
                "first": one.first, "anew": one.anew, "begun": key in begun,
            }
            for key, one in seen.items()
            if key in begun or any(each is not None for each in one.generators)
        ] + [row for key, row in self._rows.items() if key not in seen]  # fmt: skip

    # ---- from a hand-off ----

    def put(self, rows: list[dict[str, Any]], salt: bytes) -> None:
        """The loop begins: loaders that were made before it get their states now, others when they are iterated."""
        self._rows = {tuple(row["key"]): row for row in rows}
        for loader, key, _ in self._registry.living():
            row = self._rows.pop(key, None) if not key[1] else None
            if row is None:
                continue
            self._set(self._generators(loader), row["states"])
            if row["begun"] and getattr(loader, "_iterator", None) is None:
                seed = _seed_from(salt, key)
                self._registry.goes_on(loader, functools.partial(GoingOn, self._torch, seed))

    def _put_late(self, key: Key, seen: Seen) -> None:
        """The row's ``anew`` decides; where nobody could tell then, one that does not begin as the other did has been
        made for this epoch."""
        row = self._rows.pop(key, None)
        if row is None:
            return
        seen.anew = row["anew"]
        for generator, first, was, state in zip(seen.generators, seen.first, row["first"], row["states"]):
            if generator is None or was is None:
                continue
            if seen.anew is None:
                seen.anew = not self._torch.equal(first, was)
            if not seen.anew:
                self._set([generator], [state])

    def _set(self, generators: list[Any], states: list[Any]) -> None:
        for generator, state in zip(generators, states):
            if generator is None or state is None or any(each is generator for each in self._put):
                continue
            generator.set_state(state)
            self._put.append(generator)

    def _generators(self, loader: Any) -> list[Any]:
        owners = (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
        found = [getattr(owner, "generator", None) for owner in owners]
        return [each if isinstance(each, self._torch.Generator) else None for each in found]


def _seed_from(salt: bytes, key: Key) -> int:
    """For persistent workers: theirs cannot go on, and must not begin again as they did at the very first epoch."""
    return int.from_bytes(hashlib.blake2b(salt + repr(key).encode(), digest_size=8).digest(), "big") >> 2


class GoingOn:
    """Opens a loader whose persistent workers had begun before the hand-off, as if they had only been reset.

    An uninterrupted run would draw no base seed now and iterate the sampler once; torch, which has to start them, draws
    one and iterates it twice.
    """

    def __init__(self, torch: Any, seed: int, original: Callable[[Any], Any]) -> None:
        self.torch, self.seed, self.original = torch, seed, original

    def __call__(self, loader: Any) -> Any:
        fields = vars(loader)
        name = "batch_sampler" if fields.get("batch_sampler") is not None else "sampler"
        if name not in fields or "generator" not in fields:
            return self.original(loader)
        sampler, generator = fields[name], fields["generator"]
        # torch draws the base seed where the script's default device is
        ours = self.torch.Generator(device=self.torch.empty(0).device).manual_seed(self.seed)
        # around __setattr__, which forbids it; nothing of the script's runs meanwhile but the sampler's own __iter__
        fields[name], fields["generator"] = _Once(sampler), ours
        try:
            iterator = self.original(loader)
        finally:
            fields[name], fields["generator"] = sampler, generator
        if isinstance(vars(iterator).get("_index_sampler"), _Once):
            iterator._index_sampler = sampler
        return iterator


class _Once:
    """A sampler whose first iteration is skipped."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._skipped = False

    def __iter__(self) -> Any:
        if not self._skipped:
            self._skipped = True
            return iter(())
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)
