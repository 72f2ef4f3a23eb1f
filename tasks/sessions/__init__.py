"""Tasks that close idle sessions and write summaries."""
