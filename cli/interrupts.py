"""Ctrl-C as exit code 130, whatever ran when it came.

An interrupt within `exec` or `eval` of a string (a dataclass that is being created, a named tuple) sets a flag of the
interpreter (`unhandled_keyboard_interrupt`, CPython's Modules/main.c) that catching KeyboardInterrupt does not clear.
A program started by `python -m` would then kill itself by SIGINT instead of exiting with its own code.
"""

from __future__ import annotations


def clear_interrupt() -> None:
    """Clear the interpreter's flag of an interrupt that was caught: running any string does."""
    exec("")  # noqa: S102 - the constant empty program
