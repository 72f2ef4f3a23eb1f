"""Tasks of the jobs that curate memories and maintain database files."""
