"""An agent's own Celery workers: a module as a developer would write it, in its own folder, run by `celery -A`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Final

import reverie
from reverie import contract
from reverie.scheduling.types import ScheduleRun
from worker.app import app, use_runtime
from worker.runtime import Runtime

WAIT_SECONDS: Final = 60.0
_CLIENT: Final = str(Path(reverie.__file__).parents[1])

app.loader.import_default_modules()


class AgentProcess:
    """A worker of an agent: its process, its folder, and its log."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
        self.process = process
        self.folder = folder
        self._log = log

    @property
    def log_text(self) -> str:
        """Return what it has logged so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, name: str) -> str:
        """Wait until the agent's code has written a file, and return its content."""
        path = self.folder / name
        until(lambda: path.exists() and path.read_text() != "", f"no file {name}; it said:\n{self.log_text}")
        return path.read_text()

    def kill(self) -> None:
        """Kill it and all its children, as a machine failure would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def agent_worker(folder: Path, code: str, environment: Mapping[str, str], *flags: str) -> Iterator[AgentProcess]:
    """Run an agent's module as `celery -A my_agent worker` does; it and its children are killed after the block."""
    folder.mkdir(exist_ok=True)
    (folder / "my_agent.py").write_text(dedent(code))
    # Modules with the same names as ours, which a developer's folder may well contain.
    for name in ("tasks", "storage"):
        (folder / f"{name}.py").write_text("raise SystemExit('this is not to be imported')\n")
    log = folder / f"worker-{time.monotonic_ns()}.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REVERIE_", "PYTHON"))}
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "my_agent", "worker", "--concurrency=1", "--loglevel=INFO", *flags],
            env={**kept, "PYTHONPATH": _CLIENT, **environment},
            cwd=folder,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield AgentProcess(process, folder, log)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def fire(runtime: Runtime, workspace: str = contract.DEFAULT_WORKSPACE) -> list[str]:
    """Do what the sweep and one of Reverie's workers do; return the ids of the runs that were executed."""
    with use_runtime(runtime):
        app.tasks[contract.RUN_DUE_SCHEDULES].body(manual=True)
        with runtime.stores.workspace(workspace).reading() as tx:
            waiting = tx.open_runs.to_send(clock=2**62, lost_before=2**62, limit=100)
        for run in waiting:
            app.tasks[contract.RUN_SCHEDULE].body(workspace=workspace, run=run.id)
    return [run.id for run in waiting]


def fired(runtime: Runtime, client: reverie.Reverie, schedule: str, workspace: str = contract.DEFAULT_WORKSPACE) -> str:
    """Wait until a schedule has fired by itself; return the id of its first run."""
    until(lambda: fire(runtime, workspace) or client.runs.list(schedule), "it does not fire")
    return client.runs.list(schedule)[-1].id


def ended(client: reverie.Reverie, run_id: str, meanwhile: Callable[[], object] = lambda: None) -> ScheduleRun:
    """Wait until a run has ended and return it; `meanwhile` is called before each check."""

    def over() -> bool:
        meanwhile()
        return client.runs.get(run_id).status not in ("pending", "running")

    until(over, f"run {run_id} does not end")
    return client.runs.get(run_id)


def until(condition: Callable[[], object], otherwise: str, *, seconds: float = WAIT_SECONDS) -> None:
    """Wait until a condition holds; fail with the text `otherwise` if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
