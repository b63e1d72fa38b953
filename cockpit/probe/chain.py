"""One epoch of one managed loader: what its iterator asks for the next batch, across any number of swaps.

The iterator that the script holds (torch's own, or our Front) has a Chain as its ``_next_data``. It hands out what
the old source has begun, then goes on with the new one, and falls back where a change fails. It knows that
iterator only weakly, so that dropping it still ends all workers at once. It must never swallow what is the
script's own: an exception of its sampler, of its signal handlers, or one that its own settings raise as well.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

from .children import hide
from .feed import Feed
from .groups import Group
from .guard import _raised_by_signal_handler as raised_by_signal_handler
from .mechanism import Mechanism
from .outcomes import Doubt, Notice, Swap, attempt, reach, why
from .patience import Patience
from .recipes import Recipe
from .seeds import Seeds
from .sources import Source
from .workers import is_about, obituary


class Chain:
    """Called without arguments by torch's ``__next__``: the next batch, or StopIteration.

    ``tell`` takes Notices; ``keep`` is told which source is to outlive the epoch, None for none; ``reused`` is one
    that has outlived the last. ``before`` is what was in force until now: the first way back.
    """

    def __init__(
        self, mechanism: Mechanism, recipe: Recipe, feed: Feed, seeds: Seeds, script: Group, group: Group,
        before: Group, tell: Callable[[Notice], None], keep: Callable[[Any], None], patience: Patience,
        reused: Any = None,
    ) -> None:  # fmt: skip
        self._mechanism, self._recipe, self._feed = mechanism, recipe, feed
        self._seeds, self._script, self._patience = seeds, script, patience
        self._tell, self._keep = tell, keep
        self.group = group
        self._front: Callable[[], Any] = _nothing
        self.ended = False
        self.stall_ns = 0
        self.live: Any = None
        self._reused = reused
        self.draining: list[Any] = []
        self._ways_back = self._ways_back_from(group, before)
        self._handed_out = 0
        self._doubt: Doubt | None = None
        self._proven = False

    def attach(self, front: Any) -> None:
        """Becomes what ``front`` asks for data from now on."""
        self._front = weakref.ref(front)
        front._cockpit_samples = None
        front._next_data = self

    # ---- handing out ----

    def __call__(self) -> Any:
        # exceptions are never kept in a variable: through its traceback it would keep this chain, and with it the
        # workers, alive until the garbage collector comes by
        while True:
            source = self._source()
            try:
                data = source.fetch()
            except StopIteration:
                if not self._is_end(source):  # the dataset's own
                    self._passed_on(source)
                    raise
                if self._is_over():
                    raise
            except Exception as error:
                if not self._recover(source, error):
                    self._passed_on(source)
                    self._acquit(error)
                    raise
            else:
                return self._hand_out(source, data)

    def _source(self) -> Any:
        while self.draining:
            if self.draining[0].in_flight:
                return self.draining[0]
            self._timed(self.draining.pop(0).close)
        if self.ended:
            raise StopIteration
        while self.live is None:
            self._timed(self._open)
        return self.live

    def _hand_out(self, source: Any, data: Any) -> Any:
        self._front()._cockpit_samples = source.samples
        self._handed_out += 1
        if self._doubt is not None:
            self._judge(source.samples or self._doubt.samples)
        if self.draining and source is self.draining[0] and not source.in_flight:
            source.dismiss()
        self._feed.handed_out()
        return data

    def _passed_on(self, source: Any) -> None:
        """What ``source`` raised goes to the script in place of a batch."""
        source.settle()
        if not self._feed.reading:
            self._feed.handed_out()

    def _is_end(self, source: Any) -> bool:
        return source is self.live and not source.sent and not source.in_flight

    def _is_over(self) -> bool:
        """The live source has ended: asks the sampler itself, unless it has said so already."""
        over = self._recipe.iterable or not self._feed.more()
        if not over:
            self._seeds.used()
        self.ended, self.live = over, None
        if over and self._doubt is not None:  # what is left is dropped
            self._judge(self._doubt.samples)
        return over

    # ---- changing ----

    def can_swap(self) -> bool:
        """Not while an earlier swap still drains: never more than two sources alive."""
        return not self.draining and not self.ended

    def swap(self, group: Group, old: Any = None) -> Swap | None:
        """Goes on with ``group``; ``old`` is torch's own iterator where that is what has served so far.

        None where too little is left of the epoch for it. The new source is built before anything of the old
        one is touched: where that fails, the old one simply goes on.
        """
        before = self.group
        began = self._mechanism.clock()
        serving = old if old is not None else self.live
        if serving is None:  # nothing has been read yet: only what will be built changes
            if self._reused is not None:
                self._keep(None)
                self._reused.close()
                self._reused = None
            self.group, self._ways_back = group, self._ways_back_from(group, before)
            return Swap(0, 0, group.capacity)
        if group.num_workers and attempt(self._feed, self._feed.peek)[0] is not True:
            return None
        self._seeds.used()
        source, failure = attempt(self._feed, self._build, group)
        stall_ns = self._mechanism.clock() - began
        if self._feed.holds:
            return None  # the sampler itself has raised: the old source comes to it in its own time
        if failure is not None:
            self._tell(Notice(group, before, failure))
            return Swap(stall_ns, 0, before.capacity, failed=True)
        drain = serving.in_flight
        if isinstance(serving, Source):
            serving.feed = Feed(iter(()))
        self.draining.append(serving)
        self.live, self.group = source, group
        self._ways_back, self._proven = self._ways_back_from(group, before), False
        return Swap(stall_ns, drain, group.capacity)

    def open(self) -> None:
        """Starts the first source at once, where the script's own settings would have: it reads its indices now."""
        while self.live is None:
            self._open()
        self._feed.keep_lead()

    def close(self, but: Any = None) -> None:
        """Ends all workers of this epoch except those of ``but``, and the epoch."""
        sources = self._sources()
        self.ended, self.draining, self.live = True, [], None
        for source in sources:
            if source is not but:
                source.close()

    # ---- what is really in force ----

    def facts(self) -> Group:
        """From the live source; where there is none (not yet begun, or at the end), what it will be or was."""
        live = self.live
        return (live.facts() if live is not None else self.group).alone

    def pids(self) -> tuple[int, ...]:
        return tuple(pid for source in self._sources() for pid in source.pids)

    def queue(self) -> tuple[int, int] | None:
        counts = [ready for ready in (source.ready() for source in self._sources()) if ready is not None]
        return (sum(counts), max(self.group.capacity, sum(counts))) if counts else None

    def _sources(self) -> list[Any]:
        return [source for source in (*self.draining, self.live) if source is not None]

    # ---- what fails ----

    def _recover(self, source: Any, error: Exception) -> bool:
        """Whether the training goes on from here: the failing sources are gone, their indices are next in line."""
        if not isinstance(source, Source) or self._feed.reading:
            return False
        if raised_by_signal_handler(error.__traceback__) and not is_about(error, source):
            return False
        blamed = source is self.live
        if blamed and not self._ways_back:
            return False
        ours = source.group != self._script
        if not ((source.in_trial or ours) and not self._proven) and not (source.waiting and ours):
            return False
        if self._recipe.iterable and self._handed_out:
            return False  # a stream cannot be asked again for what it has already given
        reason = (obituary(source) if source.waiting else None) or why(error)
        sources, lost = [*self.draining, self.live], []
        for each in sources:
            lost.extend(each.undelivered())
            if each.delivered:
                self._seeds.used()
        self._feed.give_back(lost)
        self.draining, self.live = [], None
        if blamed and source.waiting:
            self._fall_back(reason)
        elif blamed:
            failed, ways_back = self.group, list(self._ways_back)
            self._use(self._ways_back.pop(0))
            until = reach(lost, source.failing()) if self.group.batch_size != failed.batch_size else 0
            self._doubt = self._doubt or Doubt(failed, reason, type(error), ways_back, until)
        for each in sources:  # last, since a signal handler of the script's may raise while they are waited for
            self._mechanism.abandon(each)
        return True

    def _acquit(self, error: Exception) -> None:
        """``error`` goes to the script: if it is what brought the change down, the change was not to blame."""
        doubt, self._doubt = self._doubt, None
        if doubt is None or self.live is None:
            return
        if type(error) is not doubt.kind and why(error) != doubt.reason:
            self._tell(Notice(doubt.failed, self.group, doubt.reason))
            return
        self._feed.give_back(self.live.undelivered())
        self._mechanism.abandon(self.live)
        self.live, self._ways_back, self._proven = None, doubt.ways_back, True
        self._use(doubt.failed)

    def _judge(self, samples: int) -> None:
        """So many more could be loaded under the former settings: once those are in that could not, it is clear why."""
        doubt = self._doubt
        assert doubt is not None
        left = doubt.samples - samples
        self._doubt = doubt._replace(samples=left) if left > 0 else None
        if self._doubt is None:
            self._tell(Notice(doubt.failed, self.group, doubt.reason))

    def _fall_back(self, reason: str) -> None:
        failed = self.group
        self._use(self._ways_back.pop(0))
        self._tell(Notice(failed, self.group, reason))

    def _use(self, group: Group) -> None:
        """The next source is one of ``group``; nothing is on its way."""
        if group.batch_size != self.group.batch_size:
            self._feed.recut(group.batch_size)
        self.group = group

    def _ways_back_from(self, group: Group, before: Group) -> list[Group]:
        ways = [before] if before != group else []
        return ways + ([self._script] if self._script not in (group, before) else [])

    # ---- building ----

    def _open(self) -> None:
        try:
            self.live = self._build(self.group)
        except Exception as error:
            if self._is_scripts_own(error) or not self._ways_back:
                raise
            self._fall_back(why(error))

    def _build(self, group: Group) -> Any:
        reused, self._reused = self._reused, None
        if reused is not None:
            try:
                reused.refill(self._feed, self._mechanism.view(self._recipe, group))
            except Exception as error:
                self._mechanism.abandon(reused)
                self._feed.give_back(reused.undelivered())
                if (self._is_scripts_own(error) and not is_about(error, reused)) or group == self._script:
                    raise
            else:
                reused.user = weakref.ref(self)
                return reused
        source = self._mechanism.build(self._recipe, group, self._seeds.now(), self._feed, self._script, self._patience)
        source.user = weakref.ref(self)
        hide(source)
        self._keep(source if group.persistent_workers else None)
        return source

    def _is_scripts_own(self, error: Exception) -> bool:
        return self._feed.reading or raised_by_signal_handler(error.__traceback__)

    def _timed(self, work: Callable[..., None], *args: Any) -> None:
        began = self._mechanism.clock()
        try:
            work(*args)
        finally:
            self.stall_ns += self._mechanism.clock() - began


def _nothing() -> None:
    """A weak reference to nothing."""
