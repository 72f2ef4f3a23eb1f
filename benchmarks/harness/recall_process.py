"""Recall in a fresh process: no server, no client, the store on disk and its index in memory.

Runs as `python -m benchmarks.harness.recall_process PLAN.json`; prints one line of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
import psutil

from benchmarks.harness.exact import Exactness, compare_with_exact
from benchmarks.harness.timed import Asked, Timings, WarmUp, timed, warm_up
from retrieval.request import RecallRequest
from reverie.recall.types import RecallResponse
from worker.runtime import Runtime
from worker.settings import load_settings

# The server also uses one thread for a question's vector: see `server.__main__`.
_THREADS: Final = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Questions by store: first the `warm` questions, then the timed ones."""

    data: str
    workspace: str
    warm: list[Asked]
    questions: list[Asked]
    limit: int
    exact: int = 0


class InProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements; memory in bytes, shared pages proportionally, with the model loaded."""

    model_seconds: float
    warm_up: WarmUp
    recall: Timings
    embed: Timings
    memory_before: int
    memory_after: int
    exact: Exactness | None = None


def run_in_process(plan: Plan, folder: Path) -> InProcess:
    """Measure in a fresh process. Raises RuntimeError: with its output, if it fails."""
    path = folder / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    command = [sys.executable, "-m", "benchmarks.harness.recall_process", str(path)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "REVERIE_CONFIG": os.devnull, "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"recall in process failed:\n{done.stderr[-2_000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=InProcess)


def main(path: str) -> None:
    """Load, warm up, measure, print."""
    plan = msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    runtime = Runtime(load_settings(data=Path(plan.data), embedding_threads=_THREADS))
    try:
        print(msgspec.json.encode(_measured(plan, runtime)).decode())
    finally:
        runtime.close()


def _measured(plan: Plan, runtime: Runtime) -> InProcess:
    embedder = runtime.embedder
    assert embedder is not None, "this benchmark needs an embedder"
    started = time.perf_counter()
    embedder.load()
    embedder.embed_query("what the first question costs more is the model's, not the recall's")
    model_seconds = time.perf_counter() - started

    def ask(question: Asked) -> str:
        return _recall(runtime, plan.workspace, question, plan.limit).degraded

    def embed(question: Asked) -> str:
        embedder.embed_query(question.text)
        return ""

    before = memory()
    warmth = warm_up(ask, [*plan.warm, *plan.questions])
    timed(ask, plan.warm)
    timings = timed(ask, plan.questions)
    after = memory()
    return InProcess(
        model_seconds=model_seconds,
        warm_up=warmth,
        recall=timings,
        embed=timed(embed, plan.questions),
        memory_before=before,
        memory_after=after,
        exact=compare_with_exact(runtime, plan.workspace, plan.questions[: plan.exact]) if plan.exact else None,
    )


def _recall(runtime: Runtime, workspace: str, question: Asked, limit: int) -> RecallResponse:
    request = RecallRequest(query=question.text, agent=question.agent, limit=limit)
    return runtime.recaller.recall(workspace, request).response


def memory(pid: int | None = None) -> int:
    """Return the memory of a process, by default this one, in bytes; shared pages proportionally if the system reports
    it.
    """
    about = psutil.Process(pid).memory_full_info()
    return int(getattr(about, "pss", 0) or about.rss)


if __name__ == "__main__":
    main(sys.argv[1])
