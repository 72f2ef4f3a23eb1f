"""Routes for the curation log, undo, and the notebook in git."""
