"""MCP: what models and their clients see of a memory, over HTTP (`/mcp`) and standard input and output."""
