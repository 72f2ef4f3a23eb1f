"""The command line `reverie`: every command prints text, or JSON with `--json`, and reports an error in one line.

Exit codes: 0 success, 1 failure, 2 wrong command or invalid input, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from cli.interrupts import clear_interrupt
from reverie.errors import Conflict, NotFound, Rejected, ReverieError

__all__ = ["main"]


def main() -> None:
    """Run the command given on the command line and exit with its code."""
    try:
        # Inside the try: importing takes a moment, in which Ctrl-C may come.
        from cli.application import application
        from cli.commands import limited_to

        # The group imports and builds the command that is used.
        limited_to(application)(standalone_mode=True)
    except (NotFound, Conflict) as error:
        _fail(str(error), code=1)
    except Rejected as error:
        _fail(str(error), code=2)
    except ReverieError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        clear_interrupt()
        _fail("interrupted", code=130)
    except BrokenPipeError:
        # The reader of the output has gone; Python would print another error when it closes standard output.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # An unexpected error of a file or folder: it names the path and the reason.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), code=1)


def _fail(text: str, *, code: int) -> NoReturn:
    """Print an error to standard error and exit."""
    print(f"reverie: {text}", file=sys.stderr)  # noqa: T201 - the output of the program
    sys.exit(code)
