"""Odd payloads of every kind that a running installation can meet."""
