"""The way into the engine's process: ``python -I cockpit/engine/__main__.py DATA SOCKETS``, started by ``start``.

Isolated (-I), so that neither the user's folder nor ``PYTHONPATH`` can put a module in our way. It makes this very copy
of the package importable: after the standard library (an old backport beside us must not shadow it), before others.
"""

from __future__ import annotations

import sys
from pathlib import Path


def put_package_on_path(path: list[str], parent: str) -> None:
    """Insert ``parent`` into ``path`` before the first folder of installed packages."""
    installed = (at for at, folder in enumerate(path) if Path(folder).name in ("site-packages", "dist-packages"))
    path.insert(next(installed, len(path)), parent)


if __name__ == "__main__":
    put_package_on_path(sys.path, str(Path(__file__).resolve().parents[2]))
    # only now can the package be found
    from cockpit.engine.main import main

    main()
