"""Pure reasoning about measured blocks: windows, comparison, words for the outcome. No clock, no files."""
