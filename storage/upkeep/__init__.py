"""Rows of background jobs: runs, dreams and retention; and the maintenance of database files."""
