"""What a script holds in an epoch whose settings are not its own, made and found again. Called by the control.

A front draws and iterates exactly what the script's own settings would have, and nothing else may.
"""

from __future__ import annotations

from typing import Any

from .chain import Chain
from .groups import Group
from .mechanism import Mechanism
from .recipes import Recipe
from .workers import facts_of, live_pids, ready_in


def new_front(mechanism: Mechanism, recipe: Recipe, script: Group, loader: Any) -> tuple[Any, Any]:
    """A front, and the sampler's iterator: one iteration of the sampler, a base seed, with workers one iteration more.

    ``loader`` gives the generator of the base seed; None: persistent workers go on, which draws none and iterates
    the sampler once.
    """
    generator = mechanism.generator() if loader is None else loader.generator
    plain = script._replace(pin_memory=False)  # the front pins nothing itself
    front = mechanism.front(recipe.view(plain, generator, recipe.index_sampler))
    own = mechanism.torch_multi if script.num_workers else mechanism.torch_single
    front._profile_name = front._profile_name.replace(type(front).__name__, own.__name__)
    indices, front._sampler_iter = front._sampler_iter, iter(())
    if loader is not None and script.num_workers:
        indices = iter(recipe.index_sampler)
    return front, indices


def rearm(held: Any, recipe: Recipe, reused: Any) -> Any:
    """``held``, the one iterator of a persistent loader, begins again, as torch resets it; the sampler's iterator.

    Whatever still serves it ends, but for ``reused``.
    """
    indices = iter(recipe.index_sampler)
    former = chain_of(held)
    if former is not None:
        former.close(but=reused)
    held._sampler_iter = iter(())
    held._num_yielded = 0
    held._IterableDataset_len_called = recipe.fields["_IterableDataset_len_called"]
    return indices


def chain_of(iterator: Any) -> Chain | None:
    """The chain behind an iterator that the script holds, or None where it is torch's own, untouched."""
    chain = getattr(iterator, "__dict__", {}).get("_next_data")
    return chain if isinstance(chain, Chain) else None


def take_stall_ns(iterator: Any) -> int:
    """Nanoseconds of builds and shut-downs inside its ``__next__`` since this was last asked; 0 for torch's own."""
    chain = chain_of(iterator)
    if chain is None:
        return 0
    stall_ns, chain.stall_ns = chain.stall_ns, 0
    return stall_ns


def facts_behind(iterator: Any, script: Group, last: Group) -> Group:
    """What is really in force behind ``iterator``; ``last`` where it has ended."""
    chain = chain_of(iterator)
    if chain is not None:
        return chain.facts()
    if getattr(iterator, "_shutdown", False) or not hasattr(iterator, "_pin_memory"):
        return last
    facts = facts_of(iterator)
    return facts if hasattr(iterator, "_workers") else script._replace(pin_memory=facts.pin_memory)


def pids_behind(iterator: Any) -> tuple[int, ...]:
    """Process ids of all workers behind ``iterator`` that are alive."""
    chain = chain_of(iterator)
    return chain.pids() if chain is not None else live_pids(iterator)


def queue_behind(iterator: Any) -> tuple[int, int] | None:
    """Batches that lie ready behind it, and how many there may be; None without workers or where nobody can tell."""
    chain = chain_of(iterator)
    if chain is not None:
        return chain.queue()
    ready = ready_in(iterator)
    return None if ready is None else (ready, iterator._prefetch_factor * iterator._num_workers)
