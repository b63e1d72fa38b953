"""The names that processes of a run know each other by: environment variables and the schema number.

One table, read by launch, probe, engine and cli, so that no name is spelt twice.
"""

from __future__ import annotations

SCHEMA = 1
"""Version of every message, journal line and file we write. Newer ones are refused, not guessed at."""

ENV_RUN = "COCKPIT_RUN"
"""The run's data folder; stands in the environment of every process of a run and marks it as ours."""
ENV_SOCKET = "COCKPIT_SOCKET"
"""Path of the engine's unix socket, for the probe."""
ENV_PACKAGE = "COCKPIT_PACKAGE"
"""Folder of this package, so that the injected sitecustomize finds the probe without touching sys.path."""
ENV_PATIENCE = "COCKPIT_PATIENCE_S"
"""Seconds that loader workers which give nothing are waited for, under settings that are not the script's own."""
ENV_LIFE = "COCKPIT_LIFE"
"""Folder of this life of the run, where it is not the first: a hot restart has put it in the place of another."""
ENV_WARM = "COCKPIT_WARM"
"""Only in a process that waits to take over: folder of the life that it will be. Gone from ``os.environ`` by then."""
ENV_WAS = "COCKPIT_WAS_"
"""Begins the name of a variable that holds what another was when the run began, where nobody gave that value: it may be
a secret, so it goes from process to process here and stands in no file."""
PRIVATE = "_training_cockpit"
"""The name that the probe's copy of this package has in a training; the injected sitecustomize spells it itself."""
HANDOFF_FOLDER = "handoff"
"""In the data folder: the hand-offs, by number."""
NOT_RESTORED = 75
"""Exit status of a training that was to go on from a hand-off and could not: better no training than one from zero."""
ENV_WORKER = "COCKPIT_WORKER"
"""In loader workers that a change has made, and so in all that those start: whose they are, once a worker is killed."""
ERROR_FILE = "probe_error"
"""In the data folder: why the probe could not be loaded; the injected sitecustomize writes it, and spells it itself."""
START_FILE = "start.json"
"""In the data folder: what the probe must know before the first message (setup from the start, schedule)."""
