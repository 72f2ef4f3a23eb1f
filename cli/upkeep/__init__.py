"""Commands for jobs, the curation log, the notebook in git, and the database files."""
