"""The command line: one file a verb, imported when called. The contract it keeps is written in the README."""
