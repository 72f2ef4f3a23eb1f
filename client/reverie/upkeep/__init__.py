"""The calls for the curation log, undo, memory files in git, and promotions."""
