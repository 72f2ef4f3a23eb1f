"""Measure how fast recall answers over HTTP from stores of 10,000 to 1,000,000 chunks in a PostgreSQL database.

Each store is built in SQLite files, measured, copied by `reverie db copy`, and measured again. Both answer the same
questions, one after the other. The database runs on the same machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psycopg
from rich.table import Table

from benchmarks.harness.big_store import StoreSize
from benchmarks.harness.default_embedder import default_embedder
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.haystack import client_of
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.postgres import running_postgres
from benchmarks.harness.progress import Progress
from benchmarks.harness.recall_stores import BuiltStore, built_store
from benchmarks.harness.result import Result, console, settings_of, shown
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.timed import Asked, timed, warm_up
from reverie.errors import Unavailable

ENGINES: Final = ("sqlite", "postgres")
# 10,000 to 1,000,000 chunks in all, of one agent and of a hundred.
SIZES: Final = tuple(
    StoreSize(total // agents, agents) for agents in (1, 100) for total in (10_000, 100_000, 1_000_000)
)
_TINY: Final = (StoreSize(120), StoreSize(40, 3))
_WARM_QUESTIONS: Final = 20
_LIMIT: Final = 5
_ELSEWHERE: Final = Asked("bench", "who is awake?")


def main() -> None:
    """Measure and write the result."""
    options = _options()
    sizes: Sequence[StoreSize] = options.sizes or (_TINY if options.quick else SIZES)
    result = Result(
        benchmark="recall_postgres", seed=options.seed, quick=options.quick, settings=settings_of(vars(options))
    )
    count = int(value_or_default(options.queries, quick=options.quick, tiny=10, full=200))
    warm = min(_WARM_QUESTIONS, count)
    result.settings.update(sizes=[str(size) for size in sizes], queries=count, warm=warm)
    embedder = default_embedder()
    result.settings["embedder"] = embedder.model
    progress = Progress()
    for size in sizes:
        with ExitStack() as held:
            store = held.enter_context(
                built_store(
                    size, embedder, questions=warm + count, seed=options.seed, keep=options.stores, tell=progress
                )
            )
            progress.step(f"{size}: built")
            _measure(result, f"{size}_sqlite", store, {}, warm)
            progress.step(f"{size}: measured with SQLite files")
            url = held.enter_context(running_postgres())
            _copy(result, size, store, url)
            progress.step(f"{size}: copied")
            _measure(result, f"{size}_postgres", store, {"REVERIE_DATABASE": url}, warm)
            progress.step(f"{size}: measured with PostgreSQL")
    _print(result, sizes)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("recall_postgres", __doc__, data=False)
    options.add_argument("--sizes", nargs="+", type=StoreSize.parse, help="CHUNKSxAGENTS, CHUNKS of each agent")
    options.add_argument("--queries", type=int, help="different questions for each store (200; 10 with --quick)")
    options.add_argument("--stores", type=Path, help="keep the large stores in this folder and reuse them")
    return options.parse_args()


def _copy(result: Result, size: StoreSize, store: BuiltStore, url: str) -> None:
    """Copy the store as an operator does."""
    command = [sys.executable, "-m", "cli", "--data", str(store.folder), "db", "copy", "--to", url]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`reverie db copy` failed:\n{done.stdout[-1_000:]}{done.stderr[-1_000:]}")
    result.add(f"{size}_copy", rounded(time.monotonic() - began), "s")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    result.add(f"{size}_postgres_bytes_a_chunk", rounded(row[0] / size.total), "bytes")
    result.add(f"{size}_sqlite_bytes_a_chunk", rounded(store.bytes_on_disk() / size.total), "bytes")


def _measure(result: Result, name: str, store: BuiltStore, environment: Mapping[str, str], warm: int) -> None:
    """Measure recalls over HTTP from one engine: the first answers of a fresh server, and those from memory."""
    stack = Stack(env=environment)
    if not environment:
        store.show(stack.data)
    with stack, ExitStack() as clients:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer: recall over HTTP cannot be measured")
        agents = dict.fromkeys(question.agent for question in store.questions)
        by_agent = {agent: clients.enter_context(client_of(stack, agent, WORKSPACE)) for agent in agents}

        def ask(question: Asked) -> str:
            try:
                return by_agent[question.agent].recall(question.text, limit=_LIMIT).degraded
            except Unavailable as error:
                return str(error)

        # A question to another workspace loads the model, so that the first answers measure the building of the index
        # only.
        clients.enter_context(client_of(stack, _ELSEWHERE.agent, "warm-up")).recall(_ELSEWHERE.text, limit=1)
        first = warm_up(ask, store.questions)
        timed(ask, store.questions[:warm])
        timings = timed(ask, store.questions[warm:])
    if first.degraded:
        result.notes.append(f"{name}: the index was not built in time: {first.degraded}")
    result.add(f"{name}_first", rounded(percentile(first.first_seconds, 0.5) * 1e3), "ms")
    result.add(f"{name}_first_longest", rounded(max(first.first_seconds) * 1e3), "ms")
    result.add(f"{name}_ready", rounded(max(first.ready_seconds)), "s")
    for label, share in (("p50", 0.5), ("p95", 0.95)):
        result.add(f"{name}_{label}", rounded(percentile(timings.seconds, share) * 1e3), "ms")
    if timings.degraded:
        result.notes.append(f"{name}: {timings.degraded} responses were degraded: {timings.why}")


def _print(result: Result, sizes: Sequence[StoreSize]) -> None:
    table = Table(title="recall over HTTP", title_justify="left", header_style="bold")
    for column in ("store", "engine", "p50 / p95", "first answer", "full after", "bytes a chunk", "copied in"):
        table.add_column(column)
    for size in sizes:
        for engine in ENGINES:
            got, name = result.figures, f"{size}_{engine}"
            table.add_row(
                f"{size.total:,} chunks" + (f", {size.agents} agents" if size.agents > 1 else ""),
                engine,
                f"{shown(got[f'{name}_p50'])} / {shown(got[f'{name}_p95'])} ms",
                f"{shown(got[f'{name}_first'])} ms",
                f"{shown(got[f'{name}_ready'])} s",
                shown(got[f"{name}_bytes_a_chunk"]),
                f"{shown(got[f'{size}_copy'])} s" if engine == "postgres" else "",
            )
    console.print(table)


if __name__ == "__main__":
    run(main)
