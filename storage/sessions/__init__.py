"""Rows of sessions, channels, scratchpads and summaries."""
