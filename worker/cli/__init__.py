"""The command line `reverie`: every command prints for people, or JSON with `--json`, and fails in one line.

Exit codes: 0 done, 1 failed, 2 the command or its input was at fault.
"""

from __future__ import annotations

import sys

from reverie.errors import Conflict, NotFound, Rejected, ReverieError
from worker.cli.application import application
from worker.cli.output import fail

__all__ = ["main"]


def main() -> None:
    """Run the command given on the command line and exit with its code."""
    # Importing a module of commands registers them.
    from worker.cli import database, health, sessions, stack, status, talk, upkeep  # noqa: F401

    try:
        application(standalone_mode=True)
    except (NotFound, Conflict) as error:
        fail(str(error), code=1)
    except Rejected as error:
        fail(str(error), code=2)
    except ReverieError as error:
        fail(str(error), code=1)
    except KeyboardInterrupt:
        fail("interrupted", code=130)
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more while it closes standard output.
        sys.stderr.close()
        sys.exit(1)
