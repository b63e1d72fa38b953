"""The ``cockpit`` command: find the verb, import its file, call it, turn an error into one sentence and a status.

Talk goes to stderr, data to stdout. It must start fast: no torch ever, no textual unless the screen opens.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from cockpit.model.errors import CockpitError, StartError

from .verbs import Verb, verb_named
from .words import split

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; its exit status. The entry point of the installed command."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that has no arrow, or a path that is no text, must not turn an answer into a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _call(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # whoever read our output has left (`| head`): nothing to complain about, nothing left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _call(words: list[str]) -> int:
    name = words.pop(0) if words else "help"
    if name in ("--version", "-V"):
        import cockpit

        print(f"cockpit {cockpit.__version__}")
        return 0
    verb: Verb | None = None
    try:
        verb = verb_named({"--help": "help", "-h": "help"}.get(name, name))
        module = importlib.import_module(f"cockpit.cli.{verb.module}")
        if _asks_for_help(words):
            words, module = [verb.name], importlib.import_module("cockpit.cli.help")
            return int(module.call(verb, split(words, ())))
        return int(module.call(verb, split(words, module.OPTIONS, script=verb.name == "run")))
    except CockpitError as error:
        print(f"cockpit: {error}", file=sys.stderr)
        return StartError.code if verb and verb.starts and error.code not in (125, 126, 127) else error.code


def _asks_for_help(words: list[str]) -> bool:
    """Only before the first word that is no option: after it, the words are a script's own."""
    for word in words:
        if word in ("--help", "-h"):
            return True
        if word == "--" or not word.startswith("-"):
            return False
    return False


if __name__ == "__main__":
    raise SystemExit(main())
