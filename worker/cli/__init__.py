"""The command line `reverie`: every command prints for people, or JSON with `--json`, and fails in one line.

Exit codes: 0 done, 1 failed, 2 the command or its input was at fault, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from reverie.errors import Conflict, NotFound, Rejected, ReverieError

__all__ = ["main"]


def main() -> None:
    """Run the command given on the command line and exit with its code."""
    try:
        # Here and not above: importing takes half a second, in which Ctrl-C may come. A module of commands registers
        # them when it is imported.
        from worker.cli import (  # noqa: F401
            broker,
            channels,
            context,
            curation,
            database,
            facts,
            health,
            memories,
            memory_transfer,
            notebooks,
            notes,
            notifications,
            recalls,
            reembed,
            reminders,
            schedule_life,
            schedule_runs,
            schedules,
            scratchpads,
            session_life,
            sessions,
            stack,
            status,
            summaries,
            talk,
            upkeep,
        )
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


def _fail(text: str, *, code: int) -> NoReturn:
    """Say what went wrong on standard error and exit."""
    print(f"reverie: {text}", file=sys.stderr)  # noqa: T201 - the face of the program
    sys.exit(code)
