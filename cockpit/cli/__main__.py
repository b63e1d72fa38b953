"""``python -m cockpit.cli``: the same as the ``cockpit`` command, for where it is not on PATH."""

from .main import main

raise SystemExit(main())
