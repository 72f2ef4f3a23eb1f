"""Runs the bodies of job tasks in separate processes that can be killed at any moment, on a fixed clock.

A fork server that has already imported everything starts the processes, so that starting one is cheap.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from memory.upkeep import consolidation, dream_sweep, maintenance
from reverie import contract
from storage.upkeep.jobs import JobRuns
from support.busy_store import clocked
from support.forks import FORKS, import_beforehand
from worker.app import app, use_runtime

JOBS: Final = (
    contract.EXTRACT_MEMORIES,
    contract.CLOSE_IDLE_SESSIONS,
    contract.CONSOLIDATE_MEMORIES,
    contract.PRUNE_DECAYED,
    contract.SUMMARIZE_SESSIONS,
    contract.CONSOLIDATE_CONVERSATIONS,
    contract.DREAM_SWEEP,
    contract.APPLY_RETENTION,
)
START_SECONDS: Final = 60.0
END_SECONDS: Final = 60.0

app.loader.import_default_modules()


class JobProcess:
    """A process that runs a job on a store when `go` is called."""

    def __init__(self, data: Path, job: str, broker: str) -> None:
        """Start the process and wait until it is ready."""
        self._line, theirs = FORKS.Pipe()
        self._process: ForkServerProcess = FORKS.Process(target=_work, args=(theirs, str(data), job, broker))
        import_beforehand()
        self._process.start()
        theirs.close()
        self._hear(START_SECONDS)

    def go(self) -> None:
        """Start the job."""
        self._line.send("go")

    def kill_after(self, seconds: float) -> bool:
        """Kill it unless it ends within this time; return whether it was killed."""
        self._process.join(seconds)
        killed = self._process.exitcode is None
        self._process.kill()
        self._process.join()
        if not killed:
            assert self._process.exitcode == 0
        self._end()
        return killed

    def counts(self) -> dict[str, Any]:
        """Wait until the job has finished; return its counts."""
        found: dict[str, Any] = self._hear(END_SECONDS)
        self._process.join()
        assert self._process.exitcode == 0
        self._end()
        return found

    def _hear(self, seconds: float) -> Any:
        assert self._line.poll(seconds), f"the process is silent for {seconds:.0f} s"
        return self._line.recv()

    def _end(self) -> None:
        self._line.close()
        self._process.close()


def run_whole(data: Path, job: str, broker: str) -> dict[str, Any]:
    """Run a job to its end and return its counts."""
    process = JobProcess(data, job, broker)
    process.go()
    return process.counts()


def _work(line: Connection, data: str, job: str, broker: str) -> None:
    """Run a job in very small batches, so that there are many points at which it can be killed."""
    for module, name, size in (
        (consolidation, "BATCH", 5),
        (maintenance, "BATCH_MESSAGES", 20),
        (dream_sweep, "_WRITE_BATCH", 3),
    ):
        setattr(module, name, size)
    # Every copy of a job starts, so that only its lease keeps two of them apart.
    JobRuns.claim = lambda *_, **__: True  # type: ignore[method-assign]
    runtime = clocked(Path(data), broker=broker)
    line.send("ready")
    line.recv()
    with use_runtime(runtime):
        counts = dict(app.tasks[job].body(manual=True))
    runtime.close()
    line.send(counts)
