"""The calls for what background jobs changed: the curation log, undo, and the notebook in git."""
