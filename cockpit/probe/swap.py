"""The loader-swap mechanism: other settings for a live, unmodified DataLoader, each index exactly once, in order.

Called by the probe's hooks, in the thread of the script, and by nobody else. It must never draw from a generator
that the script can see, never touch a loader whose settings are the script's own, and never leave the training
without a source of batches: what fails comes back to the settings before, with a notice that says why.

``install(torch)`` once; ``mechanism.off`` says why nothing can be swapped, or None. Then one LoaderControl for each
DataLoader, kept in a WeakKeyDictionary (it holds the loader weakly):

- ``plan`` turns asked knobs into a whole Group, or raises Refused with the sentence for the user. It has the last
  word: "2 workers and prefetch 4" can be had together where ``refusals`` greys prefetch alone out.
- ``open`` in the patched ``DataLoader.__iter__`` is the boundary; what it raises is the script's own: let it
  through, and never call the original again. ``opened_untouched`` where nothing was ever asked of the loader.
- ``swap`` at entry of the patched iterator ``__next__``, before the original. None: not yet (the last swap still
  drains, or the old workers hold all that is left of the epoch): ask again at the next one; ``open`` takes the same
  group. Only the sampler's own and signal handlers' exceptions wait or pass; a failed swap says ``failed``.
- ``take_notices`` after every open, swap and ``__next__`` of a managed iterator: changes rolled back. One that failed
  in the dataset is told with the next batch that the former settings could serve; if they cannot either, the
  exception was the script's own, goes to it, and the change stands.
- ``take_stall_ns(iterator)``: builds and shut-downs inside its ``__next__``, which are *start*, not *wait*.

A managed iterator carries ``_cockpit_samples``, the length of the batch just handed out; None where unknown
(streams, ``batch_size=None``, and while untouched workers drain: the hooks' own count by ``_next_index`` goes on
there). Sources, which no script ever holds (``is_source``), override ``_next_index``: a patch sees only torch's.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Callable

from ..model.knobs import SCRIPT, Value
from .chain import Chain, _nothing
from .cuts import Cuts
from .dataset_watch import DatasetWatch
from .feed import Feed, unsure_after
from .fronts import chain_of, facts_behind, new_front, pids_behind, queue_behind, rearm, take_stall_ns
from .groups import Group, Path, Refused, couple, script_group
from .kept import release, reusable
from .known import Known
from .mechanism import Mechanism, install, is_source
from .outcomes import Notice, Swap
from .recipes import Recipe, recipe_of
from .refusals import Limits, Refusal, depending
from .seeds import Seeds
from .sharing import given_to_workers
from .workers import UntouchedWorkers

__all__ = [
    "Group", "LoaderControl", "Mechanism", "Notice", "Refusal", "Refused", "Swap", "chain_of", "install", "is_source",
    "take_stall_ns",
]  # fmt: skip


class LoaderControl:
    """Everything that is done to one DataLoader. Holds it weakly; used by the threads that iterate it.

    ``noticed`` is called when there is a notice to take. ``patience.saw`` hears how long batches have taken that
    torch's own iterators gave. ``learnt``: of the place where the loader was made; others made there had it before.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        loader: Any,
        noticed: Callable[[], None] = _nothing,
        learnt: dict[str, DatasetWatch] | None = None,
    ) -> None:
        self._mechanism, self._noticed = mechanism, noticed
        self.patience = mechanism.patience()
        self._loader = weakref.ref(loader)
        self.script = script_group(loader)
        self._path = Path(self.script)
        self._remembered: Group | None = self.script if self.script.num_workers else None
        self._front: Callable[[], Any] = _nothing
        self._notices: list[Notice] = []
        self._known = Known(mechanism, loader, self.script, learnt)
        self.dataset = self._known.dataset
        self._managed = False
        self._first_seed: int | None = None
        self._epochs = 0

    # ---- asking ----

    def plan(self, asked: Mapping[str, Value], now: bool = False, base: Group | None = None) -> Group:
        """The whole group that ``asked`` leads to. Raises Refused with the reason."""
        base = base or self.in_force
        if self._starts_workers(asked, base, now):
            self._look_closely(now)
        return self._planned(self._known.limits, asked, now, base)

    def plan_again(self, asked: Mapping[str, Value], base: Group) -> Group:
        """``plan`` of what has landed here before: where it has turned out since to do harm it gives way at ``open``,
        with a notice."""
        limits = self._known.before(self._loader(), self.script)
        return self.plan(asked, base=base) if limits is None else self._planned(limits, asked, False, base)

    def _planned(self, limits: Limits, asked: Mapping[str, Value], now: bool, base: Group) -> Group:
        limits.check(asked, now, self.script, base)
        return limits.checked(couple(self.script, asked, base, self._remembered))

    def refusals(self) -> dict[str, Refusal]:
        """For each loader knob, whether and when it can be changed as things are, and why not."""
        return depending(self._known.limits, self.in_force)

    def take_notices(self) -> list[Notice]:
        """Changes that were rolled back since this was last asked."""
        notices, self._notices = self._notices, []
        return notices

    # ---- the boundary ----

    def open(self, original_iter: Callable[[Any], Any], group: Group | None, own_size: int | None = None) -> Any:
        """What ``iter(loader)`` gives the script: its own iterator, or ours. Raises only what is the script's own.

        ``own_size``: of the script's batches; the loader's batch sampler has that of ``group`` by now.
        """
        loader = self._loader()
        self._epochs += 1
        self._look_at(loader)
        wanted = group or self.script
        if self._known.limits.whole is None and (self._managed or wanted != self.script):
            return self._open_managed(loader, wanted, own_size, getattr(original_iter, "seed", None))
        release(loader, self._managed, self.script)
        iterator = original_iter(loader)
        self._note(loader, iterator)
        self._path = self.dataset.path = Path(self.script)
        return iterator

    def opened_untouched(self, loader: Any, iterator: Any) -> None:
        """The hooks let the script open ``iterator`` itself, nothing being asked: what a later swap must know."""
        self._epochs += 1
        self._look_at(loader)
        self._note(loader, iterator)
        self._path = self.dataset.path = Path(self.script)

    def _look_at(self, loader: Any) -> None:
        self.script = script_group(loader)
        self._known.look_at(loader, self.script, self._last, self._managed or self._last != self.script)
        if self.script.num_workers and self._remembered is None:
            self._remembered = self.script

    def look_within(self) -> None:
        """At the end of an epoch, before the script changes anything for the next one; the loader may be gone."""
        self._known.look_within(given_to_workers(self._loader(), self._front()))

    def _starts_workers(self, asked: Mapping[str, Value], base: Group, now: bool) -> bool:
        """Whether ``asked`` leads to workers; not while an earlier swap drains, when none will be started yet."""
        chain = chain_of(self._front()) if now else None
        value = asked.get("num_workers", base.num_workers)
        own = self.script.num_workers if value == SCRIPT else value
        return bool(asked) and own != 0 and (chain is None or chain.can_swap())

    def _look_closely(self, now: bool = False) -> None:
        given = given_to_workers(self._loader(), self._front())
        self._known.look_closely(given, self.script, self._last, now)

    def _without_harm(self, group: Group) -> Group:
        """``group``, or what is safe where it has turned out since that its workers would do harm."""
        if group.num_workers and group.alone != self.script:
            self._look_closely()
            allowed = self._known.limits.workers
            if allowed is not None and group.num_workers not in allowed:
                own = self.script._replace(batch_size=group.batch_size)
                safe = couple(self.script, {"num_workers": 0}, group) if 0 in allowed else own
                self._tell(Notice(group, safe, self._known.limits.workers_reason or ""))
                return safe
        return group

    def _note(self, loader: Any, iterator: Any) -> None:
        """Remembers on torch's own iterator what a swap in its middle will need; the loader may be gone then."""
        if self._known.limits.whole is not None or not isinstance(iterator, self._mechanism.base_class):
            return
        self._front = weakref.ref(iterator)
        with suppress(AttributeError):  # a loader that torch's own iterators understand and we do not: no swaps
            iterator._cockpit_recipe = recipe_of(loader, self._mechanism.iterable_kind)
        if self._first_seed is None:
            self._first_seed = iterator._base_seed
        if isinstance(iterator, self._mechanism.torch_single):
            self._mechanism.run("taken", self.dataset.look_at_fetches, self._mechanism, iterator)

    def _open_managed(self, loader: Any, group: Group, own_size: int | None, goes_on: int | None = None) -> Any:
        """``goes_on``: not the first epoch of persistent workers, though the first one here; the seed for theirs."""
        recipe = recipe_of(loader, self._mechanism.iterable_kind)
        # persistent workers draw no seed and iterate the sampler once at every epoch but their first
        begun = self._managed or loader._iterator is not None or goes_on is not None
        later = self.script.persistent_workers and begun
        self._first_seed = self._first_seed if goes_on is None else goes_on
        self._managed = self.script.persistent_workers
        changed = self.dataset.changed and not self.script.persistent_workers
        # where the script has changed its dataset, that would reach the workers without our setting
        reused = None if changed else reusable(loader._iterator, group, self.script)
        if reused is None:
            release(loader, self._managed, self.script)
            group = self._without_harm(group)
        front = self._front() if later else None  # persistent workers have one iterator; has the script still it?
        if front is not None:
            indices = rearm(front, recipe, reused)
        else:
            front, indices = new_front(self._mechanism, recipe, self.script, None if later else loader)
            front._cockpit_recipe, self._front = recipe, weakref.ref(front)
        if self._first_seed is None:
            self._first_seed = front._base_seed
        before = self._path.before(group)
        if own_size is not None and (group.batch_size, before.batch_size) != (None, None):
            indices = Cuts(recipe.index_sampler, group.batch_size or own_size, own_size)
        seeds = Seeds(self._first_seed if later else front._base_seed, self._epochs, own=not later)
        feed = Feed(indices, self.script.capacity, unsure_after=self._unsure_after(recipe))
        chain = self._chain(recipe, feed, seeds, group, before, reused)
        chain.attach(front)
        self._took(group)
        if self.script.num_workers:
            chain.open()
        return front

    # ---- in the middle of an epoch ----

    def swap(self, iterator: Any, group: Group) -> Swap | None:
        """Other settings for the rest of the epoch of ``iterator``; None: not now, ask again."""
        if not self._known.limits.knobs["in_order"].can_now:
            raise Refused(self._known.limits.knobs["in_order"].reason or "")
        chain = chain_of(iterator)
        if chain is not None:  # the batches stay as they are
            group = group._replace(batch_size=chain.group.batch_size)
        if group == (self.script if chain is None else chain.group):
            return Swap(0, 0, group.capacity)
        if chain is not None:
            done = chain.swap(group) if chain.can_swap() else None
        else:
            done = self._swap_untouched(iterator, group)
        if done is not None and not done.failed:
            self._took(group)
        return done

    def _swap_untouched(self, iterator: Any, group: Group) -> Swap | None:
        recipe = getattr(iterator, "_cockpit_recipe", None)
        if recipe is None:
            raise Refused("this iterator is not torch's own")
        multi = isinstance(iterator, self._mechanism.torch_multi)
        begun = len(iterator._task_info) if multi else 0
        feed = iterator._sampler_iter
        if isinstance(feed, Feed):  # an earlier attempt failed
            feed.rebase(begun)
        else:
            read = iterator._send_idx if multi else iterator._num_yielded
            feed = Feed(feed, self.script.capacity, begun, self._unsure_after(recipe, read))
            # whatever fails from here on: the old iterator goes on, and gets back what was read ahead
            iterator._sampler_iter = feed
        seeds = Seeds(iterator._base_seed, self._epochs, own=False)
        chain = self._chain(recipe, feed, seeds, self.script, self.script)
        done = chain.swap(group, UntouchedWorkers(iterator))
        if done is not None and not done.failed:
            iterator._sampler_iter = iter(())
            chain.attach(iterator)
            self._front = weakref.ref(iterator)
            self._managed = self._managed or self.script.persistent_workers
        return done

    # ---- what is really in force ----

    @property
    def in_force(self) -> Group:
        """What has served last."""
        return self._path.now.alone

    @property
    def _last(self) -> Group:
        """That, or before this loader has served at all what its place had last."""
        return (self.dataset.path or self._path).now.alone

    @property
    def whole(self) -> str | None:
        """Why nothing at all can be changed here, or None."""
        return self._known.limits.whole

    def in_force_now(self, iterator: Any) -> Group:
        """From live facts where ``iterator`` has any; at its end, what was in force last."""
        return facts_behind(iterator, self.script, self.in_force)

    def workers(self, iterator: Any) -> tuple[int, ...]:
        """Process ids of all workers behind ``iterator`` that are alive."""
        return pids_behind(iterator)

    def queue(self, iterator: Any) -> tuple[int, int] | None:
        """Batches that lie ready, and how many there may be; None without workers or where nobody can tell."""
        return queue_behind(iterator)

    # ---- the rest ----

    def _chain(
        self, recipe: Recipe, feed: Feed, seeds: Seeds, group: Group, before: Group, reused: Any = None
    ) -> Chain:
        return Chain(
            self._mechanism, recipe, feed, seeds, self.script, group, before, self._tell, self._keep, self.patience,
            reused,
        )  # fmt: skip

    def _unsure_after(self, recipe: Recipe, read: int = 0) -> int | None:
        return None if recipe.iterable else unsure_after(self._mechanism.torch, recipe.index_sampler, read)

    def _took(self, group: Group) -> None:
        self._path.step(group)
        self.dataset.path = self._path
        if group.num_workers:
            self._remembered = group

    def _tell(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._noticed()
        self._path.back(notice.in_force)

    def _keep(self, source: Any) -> None:
        """Where torch itself keeps persistent workers: they end with the loader, or when a framework says so."""
        loader = self._loader()
        if loader is not None and (source is not None or loader._iterator is not None):
            loader._iterator = source
