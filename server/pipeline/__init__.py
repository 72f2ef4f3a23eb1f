"""Routes for messages, files, dead letters and the status of the pipeline."""
