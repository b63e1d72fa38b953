"""Run with ``python -m``: the loader is made in a module of the package, imported relatively."""

from .work import main

main()
