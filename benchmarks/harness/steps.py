"""Runs `reverie up` with workers that kill a process, such as the broker, when a task comes to a chosen step.

The command is `python -m benchmarks.harness.steps FOLDER python -m cli ... up`. With BENCH_TASK_SECONDS in the
environment, each task of embedding takes that much longer.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

from celery import signals
from kombu.transport import redis as kombu_redis

from worker.running import prepare_for_models

TAKEN, WORKING, EMBEDDED, COMMITTED, ENDED = STEPS = ("taken", "working", "embedded", "committed", "ended")
TASK_SECONDS: Final = "BENCH_TASK_SECONDS"
PREFIX: Final = (sys.executable, "-m", "benchmarks.harness.steps")


def kill_at(step: str, folder: Path, pid: int) -> Path:
    """Have the first task that comes to this step kill a process. The file that is returned is removed then."""
    (new := folder / "new").write_text(str(pid), encoding="ascii")
    return new.rename(folder / step)


def main() -> None:
    """Put the steps into the code, and run the command; its workers are forks of this process."""
    folder, slow_seconds = Path(sys.argv[1]), float(os.environ.get(TASK_SECONDS, "0"))

    def come_to(step: str) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            pid = int((folder / step).read_text())
            (folder / step).unlink()
            os.kill(pid, signal.SIGKILL)

    def around(function: Callable[..., Any], before: str, after: str = "") -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            come_to(before)
            time.sleep(slow_seconds if before == EMBEDDED else 0)
            returned = function(*arguments, **keywords)
            come_to(after or before)
            return returned

        return call

    prepare_for_models()  # before the import of numpy
    from memory.pipeline import embedding

    signals.task_received.connect(lambda **_: come_to(TAKEN), weak=False)
    signals.task_prerun.connect(lambda **_: come_to(WORKING), weak=False)
    embedding._commit = around(embedding._commit, EMBEDDED, COMMITTED)
    setattr(kombu_redis.QoS, "ack", around(kombu_redis.QoS.ack, ENDED))  # noqa: B010 - mypy allows no assignment
    sys.argv = sys.argv[4:]
    runpy.run_module("cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
