"""The engine room: starts one training, outlives terminals, serves screens and verbs, remembers what happened.

One small process for each run, without Textual and without torch. It must never be needed by the training: engines
may die and come back at any moment.
"""
