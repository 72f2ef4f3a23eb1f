"""A job whose process is killed, by its worker at the time limit or by a signal, is shown as failed with the reason."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.forks import Program
from worker.runtime import Runtime

# A worker whose sweep hangs, and is killed after its limit, or dies of a signal.
WORKER = """
import os, signal, sys, threading
from worker import app as module
module.TASK_TIME_LIMIT_SECONDS = limit = int(sys.argv[1])
module.app.loader.import_default_modules()
from reverie import contract
from worker.job_runs import registered_jobs
job = registered_jobs[contract.SWEEP_STAGES]
registered_jobs[contract.SWEEP_STAGES].__dict__["function"] = lambda runtime: (
    threading.Event().wait() if limit == 1 else os.kill(os.getpid(), signal.SIGKILL))
module.app.tasks[contract.SWEEP_STAGES].time_limit = limit
module.app.worker_main(["worker", "--queues=index", "--pool=prefork", "--concurrency=1", "--loglevel=ERROR",
    "--without-gossip", "--without-mingle"])
"""


@pytest.mark.parametrize(
    ("limit_seconds", "reason"),
    [(1, "it was killed after its time limit of 1 s"), (300, "its process died: Worker exited prematurely: signal 9")],
)
def test_a_job_whose_process_is_killed_has_failed_with_the_reason(
    make_runtime: Callable[..., Runtime], tmp_path: Path, valkey_url: str, broker_prefix: str,
    limit_seconds: int, reason: str,
) -> None:  # fmt: skip
    """Given a job that hangs, or dies as by want of memory, then its run has ended with an error that says so."""
    runtime = make_runtime()
    runtime.stores.account()
    runtime.task_sender.send("reverie.sweep_stages")
    environment = {
        "REVERIE_DATA": str(tmp_path / "data"),
        "REVERIE_BROKER": valkey_url,
        "REVERIE_BROKER_PREFIX": broker_prefix,
        "REVERIE_EMBEDDING_PROVIDER": "hash",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
    }
    log = tmp_path / "worker.log"
    process = Program(WORKER, [str(limit_seconds)], environment, log)
    deadline = time.monotonic() + 60
    try:
        # The worker logs once the run is recorded; until then this reads what the worker writes, without a pause.
        while (run := runtime.stores.jobs().last_runs().get("reverie.sweep_stages")) is None or not run.error:
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline, log.read_text("utf-8")
            with runtime.stores.account().reading():
                pass
    finally:
        process.kill()
        process.wait()
    assert run.error.startswith(reason)
    assert run.finished_at is not None
