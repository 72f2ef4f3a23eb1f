"""Routes for messages, files, dead letters and the state of the pipeline."""
