"""Code that tests of several rooms share: running trainings bare and under the cockpit, and cleaning up after them."""
