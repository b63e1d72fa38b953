"""Why there is no hand-off, in words that the engine hands on, and what a training that goes on says in its own output.

Read by ``live``.
"""

from __future__ import annotations

import sys

NOT_OPTED_IN = "the script has not called cockpit.session(…)"
ENDED = "the script's loop over run.epochs(n) has ended"
NOT_IN_LOOP = "its loop is none over run.epochs(n), and only where one of those epochs ends can it be handed over"
LAST = "this was the last epoch: nothing is left to go on with"
GIVEN_UP = "the new process was given up; the hand-off stays"


def tell(sentence: str) -> None:
    """In the training's own output: only where it goes on from a hand-off, so a bare run's stays as it is."""
    if sys.stderr is not None:
        sys.stderr.write("cockpit: %s.\n" % sentence)
        sys.stderr.flush()
