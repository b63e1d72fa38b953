"""The command line of the scripted training: what it does, how fast, and how it ends. Used by ``scripted`` alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Times are of the scripted model, in milliseconds; ``--speed 10`` plays them ten times as fast."""
    parser = argparse.ArgumentParser(prog="python -m cockpit.engine.scripted")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="in each epoch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--model-ms", type=float, default=8.0, help="forward, backward and optimizer of a step")
    parser.add_argument("--load-ms", type=float, default=24.0, help="to load a batch, in one process")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--exit", type=int, default=0, help="exit status; negative: end by that signal")
    parser.add_argument("--save-s", type=float, default=None, help="handle SIGTERM by saving for so long")
    parser.add_argument("--stop-status", type=int, default=None, help="how it ends then, if not by the signal's number")
    parser.add_argument("--print-every", type=int, default=10, help="steps between lines of output; 0: none")
    parser.add_argument("--silent", action="store_true", help="say nothing to the engine, as if torch never came")
    parser.add_argument("--refuse", action="append", default=[], metavar="KNOB=REASON")
    parser.add_argument("--session", action="store_true", help="can be restarted: hands over as with cockpit.session")
    parser.add_argument("--crash-at", type=int, default=None, metavar="STEP", help="kill itself there")
    parser.add_argument("--crash-by", choices=("kill", "raise"), default="kill", help="or by an exception")
    parser.add_argument("--crash-times", type=int, default=1, help="in so many processes of the run")
    parser.add_argument(
        "--crash-if", default=None, metavar="KNOB=VALUE", help="kill itself as soon as that is in force"
    )
    parser.add_argument(
        "--save-every", type=int, default=0, metavar="STEPS", help="write ckpt/STEP.pt into this folder"
    )
    parser.add_argument("--resume", default=None, metavar="FILE", help="go on from one of them")
    parser.add_argument("--wandb", default=None, metavar="ID", help="as if it had begun this run of a tracker")
    parser.add_argument("--hold", type=int, default=0, help="so many processes wait in their second epoch to hand over")
    parser.add_argument("--fail-if", default=None, metavar="NAME=STATUS", help="with this variable set, end so at once")
    parser.add_argument("--roll-back", default=None, metavar="REASON", help="every change comes back with this")
    return parser.parse_args(words)
