"""Frozen data that every room may name: knobs, loaders, events. Standard library only, no clock, no files.

Also loaded inside the training's own interpreter (by the probe), so: relative imports, Python 3.9 syntax.
"""
