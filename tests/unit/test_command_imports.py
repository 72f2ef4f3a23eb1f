"""What a command imports before its call: every module counts, since a command should take no longer than its call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_commands_that_send_calls_do_not_import_the_client() -> None:
    """Given a new process, when it imports these commands, then it loads neither a client nor what that needs."""
    script = """
import sys
import cli.target
import worker.supervision.local_token
from cli.commands import import_command
for name in ("memory", "facts", "notes", "sessions", "recall", "context", "status", "agents", "curation"):
    import_command(name)
parts = ("reverie.client", "celery", "kombu", "redis", "sqlalchemy", "worker.settings", "rich", "structlog")
print([name for name in sys.modules if name.startswith(parts)])
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"


def test_a_missing_argument_is_reported_before_anything_is_imported() -> None:
    """Given `reverie evaluate` with nothing to change, then neither the server nor SQLAlchemy is loaded to say so."""
    script = """
import sys
import cli
sys.argv = ["reverie", "evaluate"]
try:
    cli.main()
except SystemExit as ended:
    assert ended.code == 2
parts = ("server", "storage", "redis", "sqlalchemy", "numpy", "worker.settings")
print([name for name in sys.modules if name.startswith(parts)])
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "name what to change" in loaded.stderr
    assert loaded.stdout == "[]\n"


def test_a_status_without_a_server_is_read_without_importing_one(tmp_path: Path) -> None:
    """Given a data folder on which nothing runs, then `reverie status` loads no server, runtime, Celery, model, array
    library or client of a broker.

    Importing one of them takes longer than everything else that the command does.
    """
    script = """
import sys
import cli
sys.argv = ["reverie", "--data", sys.argv[1], "status"]
try:
    cli.main()
except SystemExit as ended:
    assert ended.code == 0
parts = ("server.", "worker.runtime", "worker.backups", "retrieval", "starlette", "celery", "kombu", "torch", "httpx")
parts += ("numpy", "redis", "structlog", "sqlalchemy")
print([name for name in sys.modules if name.startswith(parts)])
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "No worker is alive" in loaded.stdout
    assert loaded.stdout.endswith("\n[]\n"), loaded.stdout.splitlines()[-1]


def test_the_server_imports_mcp_with_the_first_request_only() -> None:
    """Given a new process, when it imports the application and all commands, then the package `mcp` is not loaded.

    It takes half a second of CPU time and 24 MB.
    """
    script = """
import sys
import server.app
from cli.commands import COMMANDS, import_command
for name in COMMANDS:
    import_command(name)
print([name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types", "sse_starlette")])
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"


def test_no_help_waits_for_imports() -> None:
    """Given a new process, when it imports the modules of all commands, as their help does, then none that is slow."""
    script = """
import sys
from cli.commands import COMMANDS, import_command
for name in COMMANDS:
    import_command(name)
parts = ("celery", "kombu", "redis", "sqlalchemy", "numpy", "structlog", "pydantic", "worker.settings")
print([name for name in sys.modules if name.startswith(parts)])
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"
