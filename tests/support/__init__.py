"""Shared by tests: a real broker, a runtime that uses it, the pipeline run in this process, and the HTTP server."""

import os

if "TESTS_ON_POSTGRES" in os.environ:
    from support.on_postgres import join_parent

    join_parent()
