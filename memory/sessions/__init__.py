"""Sessions and their lifecycle, channels, scratchpads, working memory and summaries."""
