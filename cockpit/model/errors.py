"""The one tree of errors that a user may see: a sentence and an exit code."""

from __future__ import annotations


class CockpitError(Exception):
    """One sentence that names the file, key or process and what to do; ``code`` is the exit status."""

    code = 1

    def __init__(self, sentence: str, code: int | None = None) -> None:
        super().__init__(sentence)
        if code is not None:
            self.code = code


class UsageError(CockpitError):
    """A word of the command line that we do not understand."""

    code = 2


class NoSuchRun(CockpitError):
    """No run answers to the given name."""

    code = 3


class StartError(CockpitError):
    """The training could not be started: 125 our own failure, 126 cannot be run, 127 not found."""

    code = 125


class LinkLost(CockpitError):
    """The engine of a run does not answer (any more); the training itself does not notice."""
