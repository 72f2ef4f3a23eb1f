"""What tests share: a real broker, a runtime on it, the pipeline run in this process, and the HTTP server."""
