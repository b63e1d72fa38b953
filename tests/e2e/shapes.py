"""What each training under tests/trainers is, and what must be true of it under the cockpit: one row a training.

Read by test_shapes and test_no_trace. A row says only what a person who knows the script would expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from support.outcome import TRAINERS
from support.pool import Job

NOW_FIRST = ("--at", "step:7", "num_workers=2", "--at", "epoch:2", "num_workers=1")
BOUNDARY_FIRST = ("--at", "epoch:1", "num_workers=2", "--at", "step:29", "num_workers=1")
NOW_ONLY = ("--at", "step:7", "num_workers=2", "--at", "step:29", "num_workers=1")
ONE_BOUNDARY = ("--at", "epoch:1", "num_workers=2")
BACK_TO_SCRIPT = ("--at", "step:7", "num_workers=1", "--at", "epoch:2", "num_workers=script")
REST_OF_GROUP = (
    "--at",
    "step:7",
    "num_workers=1",
    "--at",
    "epoch:1",
    "persistent_workers=on",
    "--at",
    "step:29",
    "prefetch_factor=4",
)


@dataclass(frozen=True)
class Loader:
    """A loader that the script makes: ``at`` is a piece of the line that makes it.

    ``samples``: one number an epoch; none: they are not looked at.
    """

    at: str
    role: str
    samples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shape:
    """``steps``: in all. ``change``: options of the changed run; ``in_force`` what num_workers must be at its end.

    ``landed``: the step at which each change lands (None: it does not, and ``refusal`` stands in the reason).
    ``exact``: the changed run's output equals the bare run's to the byte.
    """

    trainer: str
    loaders: tuple[Loader, ...] = ()
    steps: int | None = 36
    optimizer_steps: int | None = None
    status: int = 0
    change: tuple[str, ...] | None = NOW_FIRST
    landed: tuple[int | None, ...] = (7, 24)
    in_force: int | None = 1
    exact: bool = True
    refusal: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def job(self, options: tuple[str, ...] | None) -> Job:
        return Job(self.trainer, options, tuple(sorted(self.env.items())), self.args)

    def line(self, loader: Loader) -> str:
        """The loader's id: the file and the line on which ``loader.at`` stands."""
        lines = (TRAINERS / self.trainer).read_text().splitlines()
        return f"{self.trainer}:{next(n for n, line in enumerate(lines, 1) if loader.at in line)}"


def train(at: str = "loader = DataLoader(", *samples: int) -> Loader:
    """The usual training loader: 96 samples in each of three epochs."""
    return Loader(at, "train", samples or (96, 96, 96))


SHAPES = (
    Shape("plain.py", (train(),)),
    Shape("dropout.py", (train(),), change=BOUNDARY_FIRST, landed=(12, 29)),
    Shape("peek_break.py", (train("loader = DataLoader(", 88, 88, 88),), steps=30, landed=(7, 20)),
    Shape(
        "validation.py",
        (train("train_loader = DataLoader("), Loader("val_loader = DataLoader(", "other")),
        change=BOUNDARY_FIRST,
        landed=(12, 29),
    ),
    Shape(
        "accumulate.py",
        (train("loader = DataLoader(", 112, 112, 112),),
        steps=12,
        optimizer_steps=12,
        landed=(7, 8),
    ),
    Shape(
        "iter_next.py",
        (train("loader = DataLoader(", 96, 96, 72),),
        steps=33,
        change=BOUNDARY_FIRST,
        landed=(12, 29),
    ),
    Shape("forever.py", (train("batches = iter(DataLoader(", 288),), change=NOW_ONLY, landed=(7, 29)),
    Shape(
        "multi_epochs.py",
        (train("loader = MultiEpochs(", 288), Loader("held_out = DataLoader(", "other")),
        change=(
            "--at",
            "step:7",
            "num_workers=2",
            "--at",
            "step:12",
            "num_workers=0",
            "--at",
            "step:29",
            "num_workers=1",
        ),
        landed=(7, 12, 29),
    ),
    Shape(
        "persistent.py",
        (train("LOADER = DataLoader("),),
        change=("--at", "step:7", "num_workers=1"),
        landed=(7,),
    ),
    Shape("batch_sampler.py", (train(),)),
    Shape("subclass.py", (train("loader = SpectrumLoader("),), change=BACK_TO_SCRIPT, landed=(7, 24), in_force=0),
    Shape("stream_sharded.py", (train(),), change=ONE_BOUNDARY, landed=(12,), in_force=2, exact=False),
    Shape(
        "stream_unsharded.py",
        (train(),),
        change=ONE_BOUNDARY,
        landed=(None,),
        in_force=0,
        refusal="whole stream",
    ),
    Shape("zipped.py", (train("labelled = DataLoader("), train("unlabelled = DataLoader(", 288, 288, 288))),
    # a step whose loader runs in another thread ends with the next forward: one is under way at the boundary
    Shape("read_ahead.py", (train(),), change=ONE_BOUNDARY, landed=(11,), in_force=2),
    Shape("gan.py", (train(),), optimizer_steps=72, change=BOUNDARY_FIRST, landed=(12, 29)),
    Shape("no_loader.py", change=ONE_BOUNDARY, landed=(None,), in_force=None, refusal="no DataLoader was seen"),
    Shape("own_optimizer.py", (train(),)),
    Shape("by_hand.py", change=("--at", "step:3", "threads=2"), landed=(3,), in_force=None),
    # neither optimizer nor backward: what trains cannot be told, and that is what is said
    Shape(
        "functional.py",
        (Loader("loader = DataLoader(", "unknown"),),
        steps=None,
        change=ONE_BOUNDARY,
        landed=(None,),
        in_force=None,
        refusal="no DataLoader was seen to train",
    ),
    Shape(
        "spawn_workers.py",
        (train("loader = DataLoader(", 96, 96),),
        steps=24,
        change=ONE_BOUNDARY,
        landed=(12,),
        in_force=2,
    ),
    Shape("distributed_sampler.py", (train(),), change=REST_OF_GROUP, landed=(7, 12, 29)),
    Shape("shared_generator.py", (train(),)),
    Shape("fresh_loader.py", (train(),), change=ONE_BOUNDARY, landed=(12,), in_force=2),
    Shape("framework.py", (train(),)),
    Shape("not_in_workers.py", (train(),), landed=(None, None), in_force=0, refusal="opened by another process"),
    Shape("not_picklable.py", (train(),), landed=(None, None), in_force=0, refusal="ickle"),
    Shape("augment.py", (train(),), exact=False),
    Shape("compiled.py", (train("loader = DataLoader(", 100, 100, 100),), steps=39, landed=(7, 26)),
    Shape("checkpoints.py", (train(),)),
    Shape("rough.py", (train(),)),
    Shape("closes_fds.py", (train(),), change=NOW_ONLY, landed=(7, 29)),
    Shape("killed.py", (Loader("loader = DataLoader(", "train"),), steps=None, status=137, change=None),
    Shape("raises.py", steps=None, status=1, change=None),
    Shape("exits.py", steps=None, status=3, change=None),
    Shape("shell.sh", steps=None, status=7, change=None, args=("[/bold]",)),
)
