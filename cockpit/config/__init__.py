"""Files that people keep: ``cockpit.toml``, and the words ``KNOB=VALUE`` that mean the same on a command line."""
