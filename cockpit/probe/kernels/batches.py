"""The batch size of one DataLoader: at an epoch boundary only, and watched over the whole epoch that follows.

Made and called by ``batching``. It draws nothing, rebuilds nothing (the loader's own batch sampler gets another
number, before anything reads it), and must never be applied to a loop that would not see all samples under it.
``look``, ``open`` and ``found`` touch the loader, in the thread that iterates it; the rest are plain numbers.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from ...model import ranks
from ...model.counts import counted
from ...model.knobs import SCRIPT, Value
from ..groups import Refused
from ..lengths import Asker, run_past
from ..refusals import Refusal
from .rings import unfit
from .setters import COMPILED_ONCE_MORE

NOT_YET = "waits until the loop has used up the loader for one whole epoch"
LEFT_EARLY = "the loop left the last epoch before the loader was used up: another size would change what it sees"
ONLY_BOUNDARY = "changes at the epoch boundary"
ZIPPED = "several loaders make up one step: with another size of one, the loop would leave samples of another unseen"
SHARED = "another loader of the script has its batches cut by the same batch sampler"
OPEN = "another iterator of this loader is still open"


class Facts(NamedTuple):
    """What the loop has been seen to do. ``used_up``: whether its last epoch ended by exhausting the loader (None: no
    epoch yet); ``framework``: whose installed code iterates it; ``asked_length``: who asked ``len(loader)``, and
    ``kept_length``: those who did so once alone; ``ends_after``: a schedule that raises after its end, in words;
    ``shared``: its batch sampler serves another loader; ``made_for``: what was seen to fit one size alone;
    ``ring``: how long a ring is that the model fills with batches, and its name;
    ``unminded``: why what serves its batches cannot be ours, so that nobody could go back where one fails."""

    used_up: bool | None
    framework: str | None = None
    asked_length: str | None = None
    batch_norm: bool = False
    open_iterators: bool = False
    world: int = 1
    zipped: bool = False
    shared: bool = False
    compiled: bool = False
    ends_after: str | None = None
    made_for: str | None = None
    kept_length: tuple[Asker, ...] = ()
    unminded: str | None = None
    ring: tuple[int, str] | None = None


class BatchSize:
    """One loader. Holds it weakly. ``script`` is the script's own size, None where the loader does not batch.

    ``rows``: samples an epoch, None where nobody can tell. ``largest``: the largest size that was ever in force.
    """

    def __init__(self, torch: Any, loader: Any) -> None:
        self._loader = weakref.ref(loader)
        self.whole = _whole_reason(torch, loader)
        self.script: int | None = loader.batch_size
        self.in_force = self.largest = self._held = self.script
        self._before = self.script
        self._watched = False
        self.uneven = False
        """Whether the loop has been through batches of more than one size."""
        self._seen: int | None = None
        """The size under which it went through its last whole epoch."""
        self.rows: int | None = None
        self.drops = bool(getattr(loader, "drop_last", False))
        self.look()

    def look(self) -> None:
        """Counts anew what an epoch holds; a size that the script itself has set meanwhile is the script's own."""
        loader = self._loader()
        if loader is None or self.whole is not None:
            return
        try:
            self.rows = len(loader.sampler)
        except TypeError:
            self.rows = None
        found = self.found()
        if found != self.in_force:
            self.script = self.in_force = found

    # ---- asking ----

    def refusal(self, facts: Facts) -> Refusal:
        """What holds for the row, whatever the value: why not, or when."""
        reason = self._never(facts) or (LEFT_EARLY if facts.used_up is False else None)
        if reason is not None:
            return Refusal(can=False, can_now=False, reason=reason)
        return Refusal(can=True, can_now=False, reason=ONLY_BOUNDARY if facts.used_up else NOT_YET)

    def _never(self, facts: Facts) -> str | None:
        if facts.world > 1:
            return ranks.NOT_YET
        if facts.framework is not None:
            return "%s runs the loop: it has counted its steps already, and would miss samples" % facts.framework
        if self.whole is not None:
            return self.whole
        if facts.unminded is not None:
            return "%s: a size that fails could not be taken back" % facts.unminded
        if facts.shared:
            return SHARED
        return ZIPPED if facts.zipped else None

    def check(self, value: Value, facts: Facts) -> int:
        """The size that ``value`` means; raises Refused. The script's own can always be had."""
        if value == SCRIPT or value == self.script:
            if self.script is None:
                raise Refused(self.whole or "the loader does not batch")
            if facts.open_iterators and self.in_force != self.script:
                raise Refused(OPEN)
            return self.script
        refusal = self.refusal(facts)
        size = int(value)
        never = None if refusal.can else refusal.reason or ""
        reason = never if never is not None else OPEN if facts.open_iterators else self._unfit(size, facts)
        if reason is not None:
            raise Refused(reason)
        return size

    def _unfit(self, size: int, facts: Facts) -> str | None:
        """Why this very size cannot be had."""
        rows = self.rows
        if size < 1:
            return "a batch has at least 1 sample"
        if rows is None:
            return "the sampler does not tell how many samples it has"
        if size > rows and self.drops:
            too_few = counted(rows, "sample never fills", "samples never fill")
            return "the loader drops incomplete batches, and %s one of %d" % (too_few, size)
        if facts.batch_norm and size == 1:
            return "batch norm refuses batches of one sample"
        if facts.batch_norm and not self.drops and rows % size == 1:
            return "%d samples in batches of %d leave one sample over, which batch norm refuses" % (rows, size)
        if facts.made_for is not None and not self.uneven:
            return facts.made_for
        if not self.uneven and (ring := unfit(facts.ring, size)) is not None:
            return ring
        if facts.ends_after is not None and size < (self.in_force or size):
            return "smaller batches make more steps, and %s" % facts.ends_after
        if size < (self.script or size):
            return run_past(facts.kept_length)
        return None

    # ---- what it would do ----

    def batches(self, size: int) -> int | None:
        """Batches an epoch of that size."""
        if self.rows is None:
            return None
        return self.rows // size if self.drops else -(-self.rows // size)

    def note(self, size: int | None, facts: Facts) -> str:
        """What another size (``size``, or any) means besides the speed."""
        unfit = self._unfit(size, facts) if size else None
        if unfit is not None:
            return "will be refused: %s" % unfit
        notes = [*self._epoch_words(size), self._effect_words(size)]
        if not self.uneven and self.in_force and self._seen in (None, self.in_force):
            notes.append("the loop has only seen batches of %d: one made for those alone would fail" % self.in_force)
        if facts.compiled:
            notes.append(COMPILED_ONCE_MORE)
        if facts.asked_length:
            notes.append("%s asks len(loader): a bar or schedule made of it keeps the old length" % facts.asked_length)
        return "; ".join(notes)

    def _epoch_words(self, size: int | None) -> list[str]:
        old, rows = self.in_force, self.rows
        if not size or not old or rows is None:
            return []
        words = "batches of %d: %s an epoch instead of %s" % (size, self.batches(size), self.batches(old))
        last = rows % size
        if self.drops:
            dropped = "%s dropped instead of %d" % (counted(last, "sample"), rows % old)
            return [words, dropped] if last or rows % old else [words]
        return [words + ", the last of %d" % (last or size)]

    def _effect_words(self, size: int | None) -> str:
        if not size or not self.in_force:
            return "another effective batch: compare samples/s, and mind the learning rate"
        factor = "%.4g" % (size / self.in_force)
        return "effective batch ×%s: compare samples/s, and mind the learning rate" % factor

    # ---- in force ----

    def open(self, size: int, watch: bool = True) -> None:
        """The next ``iter(loader)`` serves batches of ``size``; ``watch``: the epoch that follows is on trial."""
        if size == self.in_force:
            return
        self._before, self.in_force, self._held = self.in_force, size, self.largest
        self._watched = watch and size != self.script
        self.largest = max(size, self.largest or size)
        loader = self._loader()
        if loader is not None:
            loader.batch_sampler.batch_size = size
            loader.__dict__["batch_size"] = size  # what the script reads is what it gets

    def give_way(self, size: int) -> None:
        """Back to ``size``: what loads the batches could not make those in force. How much room those would have
        needed in the model nobody has seen."""
        held = self._held
        self.open(size, watch=False)
        self.largest = self._held = held

    def found(self) -> int | None:
        """What the loader's own batch sampler really has."""
        loader = self._loader()
        return None if loader is None else getattr(loader.batch_sampler, "batch_size", None)

    def ended(self, samples: int | None, used_up: bool) -> str | None:
        """An epoch under this size has ended: why it must not be kept, or None. Then the size before is back."""
        size, rows = self.in_force, self.rows
        if used_up and size and rows:
            other = self._seen not in (None, size)
            self.uneven = self.uneven or other or (not self.drops and size < rows and rows % size != 0)
            self._seen = size
        if not self._watched:
            return None
        self._watched = False
        expected = self._expected()
        if used_up and (samples is None or expected is None or samples == expected):
            return None
        before = self._before
        self.open(before if before is not None else int(self.script or 1), watch=False)
        if samples is None or expected is None:
            return "with batches of %s the loop left the epoch before its end" % size
        if samples > expected:
            return "with batches of %s the loop saw %d samples, and there are %d" % (size, samples, expected)
        unseen = counted(expected - samples, "was", "were")
        return "with batches of %s the loop saw %d of %d samples: %s not seen" % (size, samples, expected, unseen)

    def _expected(self) -> int | None:
        rows, size = self.rows, self.in_force
        return rows if rows is None or not size or not self.drops else rows - rows % size


def _whole_reason(torch: Any, loader: Any) -> str | None:
    """Why the size of this loader cannot be changed by anybody, or None."""
    if loader.batch_size is None:
        return "the script made the batches itself (batch_sampler=… or batch_size=None)"
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return "an iterable dataset tells no number of samples, so nobody could check that none are missed"
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return "%s makes the batches" % type(loader.batch_sampler).__name__
    module = type(loader.sampler).__module__
    return None if module.startswith("torch.utils.data.") else "the script's own sampler may count by batches"
