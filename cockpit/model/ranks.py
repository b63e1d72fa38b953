"""One process of a run that trains, as a frozen figure: made by the engine where there are several, read by all.

The run's headline figures are those of its first rank alone; these say how the others fare beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

NOT_YET = "not with several ranks yet"
"""Why any knob but the loader's is refused. The engine knows a rank's refusal by these words."""


@dataclass(frozen=True)
class RankInfo:
    """``rank``: its number by torch.distributed, else the launcher's, else the order in which they began to train.

    ``wait_ms`` is what a step of it waited for data, ``samples_per_s`` its own rate, both over the last seconds; None
    where not measured. ``alive`` False: it has trained and is gone, ``step`` is where it was then.
    """

    rank: int
    pid: int
    step: int | None = None
    wait_ms: float | None = None
    samples_per_s: float | None = None
    alive: bool = True

    @property
    def name(self) -> str:
        """As people say it."""
        return "rank %d" % self.rank


@dataclass(frozen=True)
class RanksSeen:
    """Every process that trains, where there are several: about each two seconds, and when one comes or goes.

    ``world``: how many there are in all, by torch.distributed or the launcher; None where neither says.
    """

    at_s: float
    ranks: tuple[RankInfo, ...]
    world: int | None = None
