"""Processes of Reverie for tests, as forks of one that has imported what they need: others import it for 1.5 s of CPU.

For tests of what a process does, not of how it starts.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Final

FORKS: Final = multiprocessing.get_context("forkserver")


def import_beforehand() -> None:
    """Start the process that is forked; in Python 3.11 it finds modules only by PYTHONPATH."""
    FORKS.set_forkserver_preload(["support.preloaded"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


class Program:
    """A Python program in a process of its own. It has what is used of `subprocess.Popen`."""

    def __init__(self, code: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it with nothing but this environment; it appends what it writes to the log."""
        import_beforehand()
        log.touch()
        self._process = FORKS.Process(target=_run, args=(code, arguments, dict(environment), log))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Wait until it has ended and return its exit code. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout_seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout_seconds or 0.0)
        return self._process.exitcode

    def terminate(self) -> None:
        """Ask it to end, as supervisors do."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()


def _run(code: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
