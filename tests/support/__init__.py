"""Shared by tests: a real broker, a runtime that uses it, the pipeline run in this process, and the HTTP server."""
