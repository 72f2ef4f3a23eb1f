"""Rows of the pipeline: messages, files, chunks, the work queue and dead letters."""
