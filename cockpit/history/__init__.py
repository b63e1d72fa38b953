"""What is known about a run: the state, the fold that makes it, the journal, and a client's link to the engine."""
