"""Base seeds for the workers of one epoch, for augmentations that neither repeat nor shift the script's generators.

Called by the chain for each source that it builds. It must never draw: everything follows from a seed drawn anyway.
"""

from __future__ import annotations

import hashlib


class Seeds:
    """Base seeds for the workers of one epoch; none of them is ever drawn from a generator of the script.

    The first is the epoch's own, as torch drew it, so that a change at the boundary gives what a bare run with
    these workers would; ``own`` is False where that one is already in use or none was drawn.
    """

    def __init__(self, base: int, epoch: int, own: bool) -> None:
        self._base, self._epoch, self._number, self._own = base, epoch, 0, own

    def now(self) -> int:
        """The seed for the next source; the same one until it has been used."""
        if self._own and not self._number:
            return self._base
        text = "%d/%d/%d" % (self._base, self._epoch, self._number)
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2

    def used(self) -> None:
        self._number += 1
