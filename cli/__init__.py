"""The command line `reverie`: every command prints text, or JSON with `--json`, and reports an error in one line.

Exit codes: 0 success, 1 failure, 2 wrong command or invalid input, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, NoReturn

from reverie.errors import Conflict, NotFound, Rejected, ReverieError

__all__ = ["main", "register_commands"]

# Each module registers its commands on import.
_COMMAND_MODULES: Final = (
    "cli.broker",
    "cli.stack",
    "cli.memories.facts",
    "cli.memories.memories",
    "cli.memories.notes",
    "cli.memories.transfer",
    "cli.pipeline.health",
    "cli.pipeline.ingest",
    "cli.pipeline.status",
    "cli.recall.context",
    "cli.recall.events",
    "cli.scheduling.lifecycle",
    "cli.scheduling.notifications",
    "cli.scheduling.reminders",
    "cli.scheduling.runs",
    "cli.scheduling.schedules",
    "cli.sessions.channels",
    "cli.sessions.lifecycle",
    "cli.sessions.scratchpads",
    "cli.sessions.sessions",
    "cli.sessions.summaries",
    "cli.upkeep.curation",
    "cli.upkeep.database",
    "cli.upkeep.jobs",
    "cli.upkeep.notebooks",
    "cli.upkeep.reembed",
)


def main() -> None:
    """Run the command given on the command line and exit with its code."""
    try:
        # Inside the try: importing takes half a second, in which Ctrl-C may come.
        register_commands()
        from cli.application import application

        application(standalone_mode=True)
    except (NotFound, Conflict) as error:
        _fail(str(error), code=1)
    except Rejected as error:
        _fail(str(error), code=2)
    except ReverieError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        _fail("interrupted", code=130)
    except BrokenPipeError:
        # The reader of the output has gone; Python would print another error when it closes standard output.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # An unexpected error of a file or folder: it names the path and the reason.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), code=1)


def register_commands() -> None:
    """Import every module of commands, which registers them with the application."""
    for module in _COMMAND_MODULES:
        import_module(module)


def _fail(text: str, *, code: int) -> NoReturn:
    """Print an error to standard error and exit."""
    print(f"reverie: {text}", file=sys.stderr)  # noqa: T201 - the output of the program
    sys.exit(code)
