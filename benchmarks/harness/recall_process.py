"""Times recalls, one question after the other, and measures how much of the exact result they find.

In process there is no server and no client: the store is on disk, and its index in memory. `python -m
benchmarks.harness.recall_process PLAN.json` prints one line of JSON. The measured recall uses approximations: vector
codes, and a preselection in large indexes. The exact result uses none: cosines of the canonical float32 vectors with
numpy, and for the hybrid ranking those cosines with every chunk scored.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, groupby
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval.index.agent_index import Floats, IndexSnapshot, Rows, VectorCodes
from retrieval.index.cache import AgentIndexes
from retrieval.query import RecallRequest
from retrieval.ranking import retrievers
from retrieval.ranking.parsing import without_names
from reverie.recall.calls import Mode
from reverie.recall.types import RecallResponse
from storage.stores import Store
from worker.runtime import Runtime
from worker.settings import load_settings

# An index of a million chunks is built in the background within minutes; beyond that something is broken.
_READY_SECONDS: Final = 900.0
_AGAIN_SECONDS: Final = 0.5


class Asked(NamedTuple):
    """One question to one agent."""

    agent: str
    text: str


# Recalls, and returns why the answer is degraded, or an empty string.
Ask = Callable[[Asked], str]


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """First answers of a fresh process, one per agent: the time of each, and the time until a full one."""

    first_seconds: list[float]
    ready_seconds: list[float]
    degraded: str = ""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The time of each answer, and the number of degraded ones."""

    seconds: list[float]
    degraded: int = 0
    why: str = ""


def warm_up(ask: Ask, questions: Sequence[Asked]) -> WarmUp:
    """Ask each agent its first question until the answer is a full one: meanwhile its index is being built."""
    first, ready, still = [], [], ""
    for question in {question.agent: question for question in questions}.values():
        started = time.perf_counter()
        degraded = ask(question)
        first.append(time.perf_counter() - started)
        while degraded and time.perf_counter() - started < _READY_SECONDS:
            time.sleep(_AGAIN_SECONDS)
            degraded = ask(question)
        ready.append(time.perf_counter() - started)
        still = degraded or still
    return WarmUp(first_seconds=first, ready_seconds=ready, degraded=still)


def timed(ask: Ask, questions: Sequence[Asked], *, at_least_seconds: float = 0.0) -> Timings:
    """Ask all questions, one after the other, and then again from the first until the time is over."""
    seconds: list[float] = []
    degraded: list[str] = []
    end = time.perf_counter() + at_least_seconds
    for question in cycle(questions):
        started = time.perf_counter()
        if len(seconds) >= len(questions) and started >= end:
            break
        why = ask(question)
        seconds.append(time.perf_counter() - started)
        if why:
            degraded.append(why)
    return Timings(seconds=seconds, degraded=len(degraded), why=degraded[0] if degraded else "")


DEPTH: Final = 10
_MODES: Final[tuple[Mode, Mode]] = ("vector", "hybrid")
# Two orders of summing float32 differ by less: results this close to the last one count as equally near.
_ROUNDING: Final = 1e-5


class Exactness(msgspec.Struct, frozen=True, kw_only=True):
    """recall@10 of the exact result, averaged over the questions, for vector search and for the default ranking."""

    vector: float
    hybrid: float
    questions: int


class _OneAgent(NamedTuple):
    """Data for the exact results of one agent; row i of `vectors` belongs to row i of the snapshot."""

    snapshot: IndexSnapshot
    vectors: Floats


class _ExactCosines(VectorCodes):
    """The cosines of the canonical vectors instead of those of their codes."""

    def __init__(self, vectors: Floats) -> None:
        super().__init__(vectors.shape[1])
        self._vectors = vectors

    def cosines(self, query: Floats, rows: Rows | slice) -> Floats:
        """Return the exact cosine of each row to a unit query vector."""
        found: Floats = (self._vectors @ query)[rows]
        return found


def compare_with_exact(runtime: Runtime, workspace: str, questions: Sequence[Asked]) -> Exactness:
    """Recall each question by vector and by the default ranking, and compare the first ten with the exact ones."""
    vector: list[float] = []
    hybrid: list[float] = []
    store, embedder = runtime.store(workspace), runtime.embedder
    assert embedder is not None, "exact results need an embedder"
    for agent, of_agent in groupby(sorted(questions), key=lambda question: question.agent):
        agent_data = _load(store, runtime.indexes, agent)
        for question in of_agent:
            by_meaning, by_default = (_chunk_ids(runtime, workspace, question, mode) for mode in _MODES)
            vector.append(_vector_recall(agent_data, question, embedder, by_meaning))
            hybrid.append(_hybrid_recall(agent_data, question, embedder, by_default))
    return Exactness(vector=fmean(vector), hybrid=fmean(hybrid), questions=len(vector))


def _load(store: Store, indexes: AgentIndexes, agent: str) -> _OneAgent:
    with store.reading() as tx:
        snapshot = indexes.snapshot(store, tx, agent)
        generation = tx.index.active("vector")
        if snapshot is None or generation is None:
            raise RuntimeError(f"the index of {agent} is not in memory: warm it up first")
        vectors = np.zeros((len(snapshot.chunk_ids), generation.dim), np.float32)
        order = np.argsort(snapshot.chunk_ids)
        for ids, blob in tx.for_agent(agent).forward.vectors(generation.model, generation.dim):
            rows = order[np.searchsorted(snapshot.chunk_ids, ids, sorter=order)]
            vectors[rows] = np.frombuffer(blob, "<f4").reshape(len(ids), generation.dim)
    return _OneAgent(snapshot, vectors)


def _chunk_ids(runtime: Runtime, workspace: str, question: Asked, mode: Mode) -> list[int]:
    request = RecallRequest(query=question.text, agent=question.agent, mode=mode, limit=DEPTH)
    return [hit.chunk_id for hit in runtime.recaller.recall(workspace, request).hits]


def _vector_recall(agent_data: _OneAgent, question: Asked, embedder: Embedder, found: Sequence[int]) -> float:
    cosines = agent_data.vectors @ np.asarray(embedder.embed_query(question.text), "<f4")
    return _share(agent_data.snapshot.chunk_ids, np.where(agent_data.snapshot.alive, cosines, -1.0), found)


def _hybrid_recall(agent_data: _OneAgent, question: Asked, embedder: Embedder, found: Sequence[int]) -> float:
    snapshot = replace(agent_data.snapshot, codes=_ExactCosines(agent_data.vectors))
    query = without_names(question.text, snapshot.names)
    vector = np.asarray(embedder.embed_query(query.text), "<f4")
    ranking = retrievers.rank(snapshot, query, vector, exhaustive=True, model=embedder.model)
    return _share(ranking.chunk_ids, ranking.scores, found)


def _share(chunk_ids: NDArray[np.int64], scores: Floats, found: Sequence[int]) -> float:
    """Return the share of the best ten that was found; results that score as high as the tenth count too."""
    depth = min(DEPTH, len(scores))
    last = np.partition(scores, len(scores) - depth)[len(scores) - depth]
    good = set(chunk_ids[scores >= last - _ROUNDING].tolist())
    return len(good.intersection(found[:depth])) / depth


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
    runtime = Runtime(load_settings(data=Path(plan.data)))
    runtime.embedding_threads = _THREADS
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
