"""Processes of Reverie for tests, as forks of one that has imported what they need: others import it for 1.5 s of CPU.

For tests of what a process does, not of how it starts.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final
from uuid import uuid4

FORKS: Final = multiprocessing.get_context("forkserver")
# Runs the module that the first argument names.
RUN_MODULE: Final = "import runpy, sys; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


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

    def __init__(
        self,
        code: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        errors: Path | None = None,
        folder: Path | None = None,
        context: multiprocessing.context.BaseContext = FORKS,
    ) -> None:
        """Start it with nothing but this environment, in a folder or the current one.

        It appends what it writes to the log, or what it writes to standard error to `errors`.
        """
        self._files = (log, errors or log)
        for file in self._files:
            file.touch()
        if context is FORKS:
            import_beforehand()
        given = (code, arguments, dict(environment), self._files, folder or Path.cwd())
        self._process: BaseProcess = context.Process(target=_run, args=given)  # type: ignore[attr-defined]
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended and return its exit code. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait until it has ended and return what is in both files. Raises `subprocess.TimeoutExpired`."""
        self.wait(timeout)
        return self._files[0].read_text("utf-8"), self._files[1].read_text("utf-8")

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end, as supervisors do."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()


def start_module(
    name: str, *arguments: str, environment: Mapping[str, str], output: Path, folder: Path | None = None
) -> Program:
    """Start a module as `python -m` does; what it writes comes into two new files in the folder `output`."""
    return start_code(RUN_MODULE, name, *arguments, environment=environment, output=output, folder=folder)


def start_code(
    code: str, *arguments: str, environment: Mapping[str, str], output: Path, folder: Path | None = None
) -> Program:
    """Start a program as `python -c` does; what it writes comes into two new files in the folder `output`."""
    output.mkdir(exist_ok=True)
    files = [output / f"{kind}-{uuid4().hex}" for kind in ("out", "err")]
    return Program(code, arguments, environment, files[0], errors=files[1], folder=folder)


def run_module(
    name: str, *arguments: str, environment: Mapping[str, str], output: Path, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module as `python -m` does, and return what it wrote and its exit code."""
    program = start_module(name, *arguments, environment=environment, output=output, folder=folder)
    written = program.communicate(120)
    return subprocess.CompletedProcess([name, *arguments], program.wait(), *written)


def _run(
    code: str, arguments: Sequence[str], environment: Mapping[str, str], files: tuple[Path, Path], folder: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, file in enumerate(files, 1):
        output = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, number)
        os.close(output)
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        # As the interpreter does at its end; multiprocessing leaves exit functions out.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
