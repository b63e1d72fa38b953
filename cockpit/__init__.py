"""Cockpit: turn the knobs of a running, unmodified PyTorch training.

This file stays empty of work: it is imported inside the training too.
"""

__version__ = "0.1.0"
