"""What can go wrong with loader workers, and what then happens: one row a fault. Read by the end-to-end fault tests.

Each row is struck by ``trainers/faults.py`` with a real process and a real signal, and says what is promised under
settings that a change has made, and what the bare script does by itself. ``wrong`` tells the README's readers of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS = 12
"""Steps in an epoch of the trainer."""
PATIENCE_S = 2
"""In place of a minute: the tests cannot wait so long."""

DIES, HANGS, GOES_ON = "dies", "hangs", "goes on"
STATUS = {DIES: 1, HANGS: 14, GOES_ON: 0}
BACK = "back to the settings before"


@dataclass(frozen=True)
class Fault:
    """``reason`` must stand in the ledger; None: the change stands. ``asks``: at which step of its epoch what is
    asked. ``own``: how the bare script ends that has two workers itself. ``env``: what the trainer needs besides.

    ``alone``: it cannot be struck in one process with others.
    """

    name: str
    kind: str
    words: str
    reason: str | None
    own: str = DIES
    asks: tuple[tuple[int, tuple[str, ...]], ...] = ((2, ("num_workers=2",)),)
    env: Mapping[str, str] = field(default_factory=dict)
    more_epochs: int = 0
    alone: bool = False
    in_force: int = 0
    ours: str = BACK

    def epochs(self) -> list[str]:
        """What strikes in each epoch of the run."""
        return [self.name] + ["none"] * self.more_epochs


KILLED = "was killed by SIGKILL"
PERSISTENT = ((2, ("num_workers=2", "persistent_workers=on")),)
STANDS = "fetched again; the change stands"

FAULTS = (
    Fault("kill-forward", "killed", "a worker is killed while the training is in a forward", KILLED),
    Fault("kill-backward", "killed", "… in a backward", KILLED),
    Fault("kill-optimizer", "killed", "… in `optimizer.step()`", KILLED),
    Fault("kill-between", "killed", "… between two steps", KILLED),
    Fault("kill-validating", "killed", "… in the middle of a validation", KILLED),
    Fault("kill-queued", "killed", "… with its batches ready in the queue", KILLED),
    Fault("message", "killed", "… in the middle of a message of 30 MB", KILLED),
    Fault("kill-pinning", "killed", "… while its batches are pinned", KILLED, env={"PINNED": "1"}, alone=True),
    Fault("die-first", "killed", "… before its first batch", KILLED),
    Fault("kill-all", "killed", "all workers are killed at once", KILLED),
    Fault(
        "kill-oldest", "killed", "an old worker is killed while it drains", None, alone=True, in_force=1, ours=STANDS,
        asks=((2, ("num_workers=2",)), (5, ("num_workers=1",))),
    ),
    Fault(
        "kill-idle", "killed", "a persistent worker is killed between epochs", None, alone=True, in_force=2,
        ours="started again; the change stands", asks=PERSISTENT, more_epochs=1, env={"OWN_PERSISTENT": "1"},
    ),
    Fault(
        "kill-all-idle", "killed", "all persistent workers are killed between epochs", None, alone=True, in_force=2,
        ours="started again; the change stands", asks=PERSISTENT, more_epochs=1, env={"OWN_PERSISTENT": "1"},
    ),
    Fault("signal-term", "dies", "a worker is told to end by somebody else (SIGTERM)", "was killed by SIGTERM"),
    Fault("signal-segv", "dies", "a worker crashes in C code (SIGSEGV)", "was killed by SIGSEGV"),
    Fault("signal-bus", "dies", "a worker dies of a bus error", "was killed by SIGBUS: likely out of shared memory"),
    Fault("signal-abort", "dies", "a worker aborts (SIGABRT)", "was killed by SIGABRT"),
    Fault("status", "dies", "a worker leaves with `os._exit(3)`", "exited with status 3"),
    Fault("sys-exit", "dies", "the dataset calls `sys.exit` in a worker", "exited with status 4"),
    Fault("hang-lock", "hangs", "workers wait for a lock that a thread held at the fork", "given nothing for", HANGS),
    Fault("hang-late", "hangs", "a worker hangs after it has given batches", "given nothing for", HANGS),
    Fault("hang-deaf", "hangs", "… and does not end when it is told to", "given nothing for", HANGS),
    Fault("stopped", "hangs", "a worker is frozen while it hands over a batch (SIGSTOP)", "stood still", HANGS),
    Fault("unsendable", "cannot be sent", "a batch cannot be sent back", "cannot send what it has loaded", HANGS),
    Fault("raise-local", "cannot be sent", "what the dataset raises cannot", "cannot send what the dataset", HANGS),
    Fault(
        "deaf-end", "hangs", "workers do not end at the end of the epoch", None, HANGS, in_force=2,
        ours="ended after 5 s; the change stands",
    ),
    Fault("raise", "fails in workers only", "the dataset raises", "no such connection in a worker"),
    Fault("raise-late", "fails in workers only", "… long after the change", "stale handle in a worker"),
    Fault("raise-odd", "fails in workers only", "… an exception that cannot be made again", "Odd: data.bin"),
    Fault("raise-late-odd", "fails in workers only", "… the same, long after the change", "Odd: late.bin"),
    Fault("raise-init", "fails in workers only", "`worker_init_fn` raises", "no licence for a worker"),
    Fault("raise-collate", "fails in workers only", "`collate_fn` raises", "needs the main process"),
    Fault("unpicklable", "cannot be started", "a dataset that spawn cannot pickle", "cannot be pickled", alone=True),
    Fault("fork", "cannot be started", "no more processes", "Resource temporarily unavailable"),
    Fault("fork-second", "cannot be started", "… after the first worker", "Resource temporarily unavailable"),
    Fault("descriptors", "runs out", "too many open files as workers start", "Too many open files"),
    Fault("descriptors-late", "runs out", "… as batches arrive", "Too many open files"),
    Fault("shm", "runs out", "`/dev/shm` takes no more", "unable to resize file"),
    Fault("memory", "runs out", "a worker hits its memory limit", "MemoryError"),
)  # fmt: skip
BY_NAME = {fault.name: fault for fault in FAULTS}
TOGETHER = tuple(fault for fault in FAULTS if not fault.alone)
