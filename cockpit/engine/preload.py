"""Whether a library can be loaded before everything else: the system passes over one that cannot, and goes on without.

Called before a restart with ``LD_PRELOAD``, which would be said to be in force and do nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

TRY = ("/bin/true", "/usr/bin/true")
LONGEST_S = 5.0


def why_not(env: Mapping[str, str | None], environ: Mapping[str, str]) -> str | None:
    """What the system says of it, in its own words; None where it says nothing, or nothing is to be loaded."""
    if not env.get("LD_PRELOAD"):
        return None
    own = {name: value for name, value in environ.items() if name.startswith("LD_") and name not in env}
    tried = own | {name: value for name, value in env.items() if name.startswith("LD_") and value is not None}
    for program in TRY:
        try:
            done = subprocess.run(
                [program], env=tried, capture_output=True, text=True, timeout=LONGEST_S, errors="replace"
            )
        except (OSError, subprocess.SubprocessError):
            continue
        said = done.stderr.strip().splitlines()
        return said[0].removeprefix("ERROR: ") if said else None
    return None
