"""Commands for messages, files, and the state of the pipeline."""
