"""The command line `reverie`: every command prints for people, or JSON with `--json`, and fails in one line.

Exit codes: 0 done, 1 failed, 2 the command or its input was at fault, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, NoReturn

from reverie.errors import Conflict, NotFound, Rejected, ReverieError

__all__ = ["main", "register_commands"]

# Each registers its commands when it is imported.
_COMMAND_MODULES: Final = (
    "worker.cli.broker",
    "worker.cli.stack",
    "worker.cli.memories.facts",
    "worker.cli.memories.memories",
    "worker.cli.memories.notes",
    "worker.cli.memories.transfer",
    "worker.cli.pipeline.health",
    "worker.cli.pipeline.ingest",
    "worker.cli.pipeline.status",
    "worker.cli.recall.context",
    "worker.cli.recall.events",
    "worker.cli.scheduling.lifecycle",
    "worker.cli.scheduling.notifications",
    "worker.cli.scheduling.reminders",
    "worker.cli.scheduling.runs",
    "worker.cli.scheduling.schedules",
    "worker.cli.sessions.channels",
    "worker.cli.sessions.lifecycle",
    "worker.cli.sessions.scratchpads",
    "worker.cli.sessions.sessions",
    "worker.cli.sessions.summaries",
    "worker.cli.upkeep.curation",
    "worker.cli.upkeep.database",
    "worker.cli.upkeep.jobs",
    "worker.cli.upkeep.notebooks",
    "worker.cli.upkeep.reembed",
)


def main() -> None:
    """Run the command given on the command line and exit with its code."""
    try:
        # Here and not above: importing takes half a second, in which Ctrl-C may come.
        register_commands()
        from worker.cli.application import application

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
        # The reader of our output has gone; Python would complain once more while it closes standard output.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # What nobody foresaw of files and folders: its own words say which one and why.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), code=1)


def register_commands() -> None:
    """Import every module of commands, so that the application knows them all."""
    for module in _COMMAND_MODULES:
        import_module(module)


def _fail(text: str, *, code: int) -> NoReturn:
    """Say what went wrong on standard error and exit."""
    print(f"reverie: {text}", file=sys.stderr)  # noqa: T201 - the face of the program
    sys.exit(code)
