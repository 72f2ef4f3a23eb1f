"""Rows of background jobs: runs, dreams, what is kept and for how long; and the maintenance of database files."""
