"""A batch that a worker of ours cannot send is told of at once: else it is as if the worker had given nothing.

torch's worker hands what it has loaded to a thread that pickles it; where that fails, the thread writes a traceback
and sends nothing, and the training waits. ``ready`` runs once in a worker that a change of ours has made, right after
the fork. Nothing of it is ever in force in the training itself, nor under the script's own settings.
"""

from __future__ import annotations

from typing import Any

WHERE = "as a worker sent a batch"


def ready(source: Any, wrapper: Any) -> None:
    """What a worker of ``source`` cannot send, it sends as torch does what a dataset has raised: in a ``wrapper``."""
    if wrapper is None:  # another torch: the training hears of it when its patience is over
        return
    queue = source._worker_result_queue
    ordinary = queue._on_queue_feeder_error

    def failed(error: Exception, item: Any) -> None:
        is_batch = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int)
        if not is_batch or getattr(item[1], "where", None) == WHERE:
            ordinary(error, item)
            return
        reason = RuntimeError(_words(error, item[1] if isinstance(item[1], wrapper) else None))
        told = wrapper((RuntimeError, reason, None), WHERE)
        told.exc_msg = "error:\n" + told.exc_msg  # torch puts "Original" before it
        queue.put((item[0], told))

    queue._on_queue_feeder_error = failed


def cannot_send(error: Exception) -> str:
    """What a batch could not be pickled for."""
    why = "%s: %s" % (type(error).__name__, (str(error).strip().splitlines() or [""])[0])
    return "a worker cannot send what it has loaded: %s" % why


def _words(error: Exception, raised: Any) -> str:
    if raised is None:
        return cannot_send(error)
    return "a worker cannot send what the dataset raised, %s" % str(raised.exc_msg).strip().splitlines()[-1]
