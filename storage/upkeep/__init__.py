"""Rows of background jobs: runs, leases, the curation log and undo, dreams; and the maintenance of database files."""
