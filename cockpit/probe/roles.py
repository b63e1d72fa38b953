"""Which loaders train: told from who handed out a batch before each backward. Pure bookkeeping, no clock.

Asked by the hooks. A loader trains when it was the last to hand out a batch before a backward in the same thread,
or when it was among them in two backwards running (zipped loaders); so a validation pass or a single peek does
not. Batches that a forward without gradients has consumed count only where nothing else was handed out.
"""

from __future__ import annotations

from .streams import Stream

_MOST = 64


class Roles:
    """``recent``: streams that handed out a batch since the last backward, oldest first."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nothing seen: at install and in a forked child."""
        self.recent: list[Stream] = []
        self.interval = 0

    def handed_out(self, stream: Stream) -> None:
        recent = self.recent
        stream.evaluated = False
        if stream in recent:
            recent.remove(stream)
        recent.append(stream)
        if len(recent) > _MOST:
            del recent[: _MOST // 2]

    def evaluated(self, thread: int) -> None:
        """A forward without gradients ran in ``thread``: what was handed out there may have been for it."""
        for stream in self.recent:
            if stream.thread == thread:
                stream.evaluated = True

    def settle(self, thread: int, train_known: bool, trains: bool) -> tuple[list[Stream], bool]:
        """At a backward in ``thread``: the streams that train by this evidence, and whether they read ahead.

        ``train_known``: whether a training loader is known already. ``trains``: it is, or none was needed so far;
        then weak evidence has to come twice.
        """
        recent, self.recent = self.recent, []
        here = [s for s in recent if s.thread == thread]
        found, read_ahead = here or recent, not here
        # a stream left by ``break`` had its turn; where all are gone, each step takes the first batch of a new one
        found = [s for s in found if not s.ended] or found[-1:]
        if read_ahead and train_known:
            found = [s for s in found if s.trains]
        if not found:
            return [], False
        self.interval += 1
        fresh = [s for s in found if not s.evaluated]
        strong = fresh[-1] if fresh else (None if trains else found[-1])
        training = [s for s in found if s is strong or s.trains or s.interval == self.interval - 1]
        for stream in found:
            stream.interval = self.interval
            stream.consumed += 1
        return training, read_ahead
