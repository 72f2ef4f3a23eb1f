"""One line on standard error with the progress of a benchmark."""

from __future__ import annotations

import sys
import time

_TERMINAL_SECONDS = 0.2
_FILE_SECONDS = 10.0


class Progress:
    """Rewrites its line on a terminal; otherwise writes one every ten seconds."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._width = 0

    def __call__(self, text: str) -> None:
        """Show a line, unless one was shown a moment ago."""
        now = time.monotonic()
        if now - self._last < (_TERMINAL_SECONDS if self._terminal else _FILE_SECONDS):
            return
        self._last = now
        if self._terminal:
            sys.stderr.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def step(self, text: str) -> None:
        """Show a line that stays."""
        if self._terminal and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            self._width = 0
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
