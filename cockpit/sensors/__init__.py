"""What the machine says about a run: CPUs it may use, CPU it does use. Imported by the engine alone.

Reads files of ``/proc`` and ``/sys``, never touches the training, and answers None for what it could not measure.
"""
