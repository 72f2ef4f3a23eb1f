"""Commands for sessions, channels, scratchpads and summaries."""
