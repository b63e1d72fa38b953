"""What lives inside the training: hooks, recorder, loader swaps, link. Standard library only; is handed torch.

Must never raise into, block or noticeably slow the training. Loaded under a private alias, so: relative imports,
Python 3.9 syntax.
"""
