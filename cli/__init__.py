"""The command line `reverie`: every command prints text, or JSON with `--json`, and reports an error in one line.

Exit codes: 0 success, 1 failure, 2 wrong command or invalid input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from reverie.errors import Conflict, Forbidden, NotFound, Rejected, ReverieError, Unauthorised

__all__ = ["clear_interrupt", "main"]


def main() -> None:
    """Run the command given on the command line and exit with its code."""
    _replace_closed_streams()
    try:
        # Inside the try: importing takes a moment, in which Ctrl-C may come.
        from cli.application import application
        from cli.commands import limited_to

        # The group imports and builds the command that is used.
        limited_to(application)(standalone_mode=True)
    except ReverieError as error:
        is_invalid = isinstance(error, Rejected) and not isinstance(
            error, (NotFound, Conflict, Unauthorised, Forbidden)
        )
        # A file that cannot be read or written is a failure: the command itself was right.
        _fail(str(error), code=2 if is_invalid and not isinstance(error.__cause__, OSError) else 1)
    except SystemExit as ended:
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            _fail("interrupted", code=130)  # the command itself has printed nothing about it
        raise
    except KeyboardInterrupt:
        clear_interrupt()
        _fail("interrupted", code=130)
    except BrokenPipeError:
        # The reader of the output has gone; Python would print another error when it closes standard output.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        # An unexpected error of a file or folder: it names the path and the reason.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error), code=1)


def clear_interrupt() -> None:
    """Clear the interpreter's flag of a caught interrupt by running a string, so that the exit code is 130.

    An interrupt within `exec` or `eval` of a string (a dataclass that is being created, a named tuple) sets a flag of
    the interpreter (`unhandled_keyboard_interrupt`, CPython's Modules/main.c) that catching KeyboardInterrupt does not
    clear. A program started by `python -m` would then kill itself by SIGINT instead of exiting with its own code.
    """
    exec("")  # noqa: S102 - the constant empty program


def _replace_closed_streams() -> None:
    """Open the standard streams that are closed, to nothing: files opened later would get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.dup2(descriptor, number)
            if descriptor != number:
                os.close(descriptor)
            os.set_inheritable(number, True)  # for the processes that this one starts
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _fail(text: str, *, code: int) -> NoReturn:
    """Print an error to standard error and exit."""
    from cli.output import note

    note(f"reverie: {text}")
    sys.exit(code)
