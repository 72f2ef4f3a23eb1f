"""The memory page, for people with a browser. It is made of the same calls that HTTP and MCP carry out."""
