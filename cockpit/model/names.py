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
ENV_WORKER = "COCKPIT_WORKER"
"""In loader workers that a change has made, and so in all that those start: whose they are, once a worker is killed."""
ERROR_FILE = "probe_error"
"""In the data folder: why the probe could not be loaded; the injected sitecustomize writes it, and spells it itself."""
START_FILE = "start.json"
"""In the data folder: what the probe must know before the first message (setup from the start, schedule)."""
