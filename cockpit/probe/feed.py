"""One sampler iterator that outlives every swap: hands each index to exactly one source, takes back what was lost.

Called by sources (for indices to load) and by the chain (for what was handed out). It must never ask the sampler
for more than the script's own settings would have by the end of an iterator, nor later than they would have:
where the script reads ahead (its workers × prefetch) the feed does so too, whatever the source in force needs, so
samplers that draw lazily draw at the same moments as in a bare run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from .cuts import Cuts


class Feed:
    """An iterator over a sampler's indices with a way back.

    ``lead``: indices that the script's own settings keep read ahead of what was handed out. ``unsure_after``:
    number of indices after which asking once more may draw from a generator of the script (None: no such
    thing); sources that read ahead stop there, and only the script's own last ``next`` goes on.
    ``reading`` stays true when the sampler itself raised: that exception is the script's own. ``hold`` keeps
    it for whoever reads next, where we read earlier than the script would have.
    """

    def __init__(
        self, indices: Iterator[Any], lead: int = 0, outstanding: int = 0, unsure_after: int | None = None
    ) -> None:
        self._indices = indices
        self._ahead: deque[Any] = deque()
        self._read = 0
        self._lead = lead
        self._outstanding = outstanding
        self._unsure_after = unsure_after
        self._held: Exception | None = None
        self.reading = False
        self.ended = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next index, asking the sampler if need be. Raises StopIteration at the sampler's end."""
        return self._ahead.popleft() if self._ahead else self._ask()

    def ahead(self) -> Any:
        """Like ``next``, for sources that read ahead of the script: stops where asking may draw."""
        if not self._ahead and self._unsure_after is not None and self._read >= self._unsure_after:
            raise StopIteration
        return next(self)

    def peek(self) -> bool:
        """Whether a source that reads ahead would get an index now; reads it if need be."""
        try:
            self._ahead.appendleft(self.ahead())
        except StopIteration:
            return False
        return True

    def more(self) -> bool:
        """Whether the script, asking once more, would get an index: asks the sampler."""
        try:
            self._ahead.appendleft(next(self))
        except StopIteration:
            return False
        return True

    def hold(self, error: Exception) -> None:
        """The sampler has raised ``error`` too early: it is raised again when the next index is needed."""
        self._held, self.reading = error.with_traceback(None), False

    @property
    def holds(self) -> bool:
        return self._held is not None

    def rebase(self, outstanding: int) -> None:
        """So many indices are on their way to the script now (another reader has not told us of each)."""
        self._outstanding = outstanding + len(self._ahead)

    def give_back(self, indices: Iterable[Any]) -> None:
        """Indices that were handed to a source and did not reach the script: next in line again, in order."""
        self._ahead.extendleft(reversed(list(indices)))

    def recut(self, size: int | None) -> None:
        """What was given back, and all that follows, comes in batches of ``size``; nothing may be on its way."""
        cuts = self._indices
        if not isinstance(cuts, Cuts):
            return  # the size is never another where nothing but the script's own was asked for
        cuts.recut(size, self._ahead)
        self._ahead.clear()
        self._read = self._outstanding = 0
        if self._unsure_after is not None:
            self._unsure_after = cuts.left()
        self.ended = False

    def handed_out(self) -> None:
        """One batch has reached the script: reads on as the script's own settings would at this moment."""
        self._outstanding -= 1
        self.keep_lead()

    def keep_lead(self) -> None:
        """Read until as many indices wait as the script's own settings would have read ahead."""
        while self._outstanding < self._lead and not self.ended:
            try:
                self._ahead.append(self._ask())
            except StopIteration:
                return

    def _ask(self) -> Any:
        if self.ended:
            raise StopIteration
        self.reading = True
        if self._held is not None:
            error, self._held = self._held, None
            raise error
        try:
            index = next(self._indices)
        except StopIteration:
            self.reading, self.ended = False, True
            raise
        self.reading = False
        self._read += 1
        self._outstanding += 1
        # a batch sampler may fill one list again and again: what is read ahead must not change under us
        return index[:] if type(index) is list else index


def unsure_after(torch: Any, index_sampler: Any, already_read: int = 0) -> int | None:
    """After how many more indices the sampler's end may draw from the script's own generator; None: never.

    torch's RandomSampler draws one more permutation from its ``generator`` at its end; a script that takes
    exactly ``len(loader)`` batches (two loaders zipped) never reaches it, so neither may our reading ahead.
    """
    samplers = torch.utils.data
    inner = index_sampler.sampler if type(index_sampler) is samplers.BatchSampler else index_sampler
    if type(inner) is not samplers.RandomSampler or inner.generator is None:
        return None
    return len(index_sampler) - already_read
