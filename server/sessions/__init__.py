"""Routes for sessions, channels, scratchpads and summaries."""
