"""The calls for sessions, channels, scratchpads and summaries."""
