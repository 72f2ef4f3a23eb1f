"""A job that a real worker kills at its time limit is shown as failed, with the reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from worker.runtime import Runtime

# A worker whose sweep hangs, and is killed after a second.
WORKER = """
import sys, threading
from worker import app as module
module.TASK_TIME_LIMIT_SECONDS = 1
module.app.loader.import_default_modules()
from reverie import contract
from worker.job_runs import registered_jobs
job = registered_jobs[contract.SWEEP_STAGES]
registered_jobs[contract.SWEEP_STAGES].__dict__["function"] = lambda runtime: threading.Event().wait()
module.app.tasks[contract.SWEEP_STAGES].time_limit = 1
module.app.worker_main(["worker", "--queues=index", "--pool=prefork", "--concurrency=1", "--loglevel=ERROR",
    "--without-gossip", "--without-mingle"])
"""


def test_a_job_killed_at_its_time_limit_has_failed_with_the_reason(
    make_runtime: Callable[..., Runtime], tmp_path: Path, valkey_url: str, broker_prefix: str
) -> None:
    """Given a job that hangs, when its worker kills it, then its run has ended with an error that names the limit."""
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
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", WORKER], env=environment, stdout=output, stderr=output)
    try:
        # The worker logs once the run is recorded; until then this reads what the worker writes, without a pause.
        while (run := runtime.stores.jobs().last_runs().get("reverie.sweep_stages")) is None or not run.error:
            assert process.poll() is None, log.read_text("utf-8")
            with runtime.stores.account().reading():
                pass
    finally:
        process.kill()
        process.wait()
    assert run.error == "it was killed after its time limit of 1 s"
    assert run.finished_at is not None
