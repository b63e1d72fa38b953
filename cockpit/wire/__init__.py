"""How messages travel: one JSON object a line over a unix socket, and frozen data to and from JSON.

Also loaded inside the training (framing only), so: relative imports, Python 3.9 syntax, standard library.
"""
