"""Becomes the command that its words are. A hot restart starts a launcher so: this Python waits for its turn before it
gets here, as each of a next life does (``probe/inject``), and the launcher, which would not wait, begins after that.

Run by the keeper under the training's environment and pid. It must leave nothing of a Python behind: the signals that
Python ignores are taken as they were, and the environment is the one that it was started with.
"""

from __future__ import annotations

import os
import signal
import sys

with open("/proc/self/environ", "rb") as file:
    pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair]
environ = {name: value for name, _, value in pairs if name != b"COCKPIT_WARM"}
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
try:
    os.execve(sys.argv[1], sys.argv[1:], environ)
except OSError as error:
    print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
