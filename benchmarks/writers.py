"""Measure lock errors and waits while many processes write to one workspace, with maintenance and a long-running
reader.

Every writer takes messages through all stages (store, chunk, embed by hash, index) with the pipeline's own functions.
Each write transaction is timed from the request for the lock to the commit. First with SQLite files, then with a
PostgreSQL database on the same machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.embedders import HashEmbedder
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.local import LocalInbox, NoWorkingMemory, store_messages
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.postgres import running_postgres
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.texts import Texts, load_texts
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks
from memory.pipeline.indexing import index_chunks
from reverie.clock import now_micros
from reverie.errors import ReverieError
from storage.opened import open_stores
from storage.recall.reindex import reindex
from storage.store import Store, new_serial
from storage.transaction import Transaction
from storage.upkeep.maintenance import optimize
from storage.upkeep.verify import verify

WORKSPACE: Final = "bench"
ENGINES: Final = ("sqlite", "postgres")
_BATCH_MESSAGES: Final = 20
# Half a second between rounds of maintenance is far more often than any schedule.
_PAUSE_SECONDS: Final = 0.5
_READER_SECONDS: Final = 5.0
_START_SECONDS: Final = 60.0


class Done(msgspec.Struct, kw_only=True):
    """The measurements of one process."""

    part: str
    messages: int = 0
    waits: list[float] = []
    whole: list[float] = []
    rounds: dict[str, list[float]] = {}
    errors: list[str] = []
    wrong: list[str] = []


class TimedStore(Store):
    """A store that records how long each write transaction waited for the lock, and how long it took in all."""

    def __init__(self, store: Store, done: Done) -> None:
        super().__init__(store.name, store.database, new_serial())
        self.given_up, self.unsaved_runs = store.given_up, store.unsaved_runs
        self._done = done

    @contextmanager
    def writing(self, *, lock_wait_seconds: float | None = None) -> Iterator[Transaction]:
        """Return the same transaction, timed."""
        asked = time.perf_counter()
        try:
            with super().writing(lock_wait_seconds=lock_wait_seconds) as tx:
                self._done.waits.append(time.perf_counter() - asked)
                yield tx
        finally:
            self._done.whole.append(time.perf_counter() - asked)


def main() -> None:
    """Measure both engines and write the result."""
    options = _options()
    writers = int(value_or_default(options.writers, quick=options.quick, tiny=4, full=16))
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=3, full=20)
    result = Result(benchmark="writers", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    texts = load_texts(options.data, 2_000, seed=options.seed)
    result.settings.update(writers=writers, seconds=seconds, texts=texts.source, batch_messages=_BATCH_MESSAGES)
    progress = Progress()
    for engine in options.engine or ENGINES:
        with ExitStack() as running:
            url = running.enter_context(running_postgres()) if engine == "postgres" else None
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="rvb-writers-")))
            progress.step(f"{engine}: {writers} writers, one maintenance process and one reader, for {seconds:g} s")
            found = _run(folder, url, texts, writers, seconds)
            with closing(open_stores(folder, url)) as stores:
                verdict = verify(stores.workspace(WORKSPACE))
        _conclude(result, engine, found, verdict.counts["messages"], verdict.wrong, seconds)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("writers", __doc__)
    options.add_argument("--writers", type=int, help="processes that write (16; 4 with --quick)")
    options.add_argument("--seconds", type=float, help="seconds for each engine (20; 3 with --quick)")
    options.add_argument("--engine", choices=ENGINES, action="append", help="only this one; both without it")
    return options.parse_args()


def _run(folder: Path, url: str | None, texts: Texts, writers: int, seconds: float) -> list[Done]:
    """Start all processes at the same time and collect their measurements."""
    with closing(open_stores(folder, url)) as stores:
        stores.workspace(WORKSPACE)
    context = multiprocessing.get_context("spawn")
    results: Queue[Done] = context.Queue()
    gate = context.Barrier(writers + 3)
    works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(_write, (number, texts)) for number in range(writers)]
    works += [(_maintain, ()), (_read, ())]
    processes = [
        context.Process(target=_part, args=(work, (folder, url), seconds, gate, results, *more), daemon=True)
        for work, more in works
    ]
    try:
        for process in processes:
            process.start()
        gate.wait(_START_SECONDS)
        found = [results.get(timeout=seconds + 90) for _ in processes]
        for process in processes:
            process.join(10)
        return found
    finally:
        for process in processes:
            process.kill()


def _part(
    work: Callable[..., None],
    where: tuple[Path, str | None],
    seconds: float,
    gate: Any,
    results: Queue[Done],
    *more: Any,
) -> None:
    """Entry point of each process: open the store, wait for the others, work until the time is up.

    `where` are the folder and the address of the database, if it is PostgreSQL.
    """
    done = Done(part=work.__name__.removeprefix("_"))
    with closing(open_stores(*where)) as stores:
        store = TimedStore(stores.workspace(WORKSPACE), done)
        gate.wait(_START_SECONDS)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                work(store, done, deadline, *more)
            except ReverieError as error:
                done.errors.append(f"{type(error).__name__}: {error}")
    results.put(done)


def _write(store: Store, done: Done, deadline: float, number: int, texts: Texts) -> None:
    inbox, working, embedder = LocalInbox(), NoWorkingMemory(), HashEmbedder()
    hooks = EmbedHooks(lambda: None, lambda _chunks, _why: None)
    round_number = 0
    while time.monotonic() < deadline:
        first = (number * 97 + round_number * _BATCH_MESSAGES) % (len(texts.turns) - _BATCH_MESSAGES)
        part = Texts(texts.turns[first : first + _BATCH_MESSAGES], texts.source)
        payloads = part.payloads(label=f"-{number}-{round_number}")
        store_messages(store, inbox, working, payloads)
        done.messages += len(payloads)
        chunk_messages(store, now=now_micros, on_batch=lambda _rows: None)
        embed_chunks(store, embedder, now=now_micros, hooks=hooks, batch_size=64)
        index_chunks(store, now=now_micros, on_indexed=lambda _indexed: None)
        round_number += 1


def _maintain(store: Store, done: Done, deadline: float) -> None:
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("optimize", lambda: optimize(store, now=now_micros())),
        ("reindex_text", lambda: reindex(store, "text", now=now_micros())),
        ("reindex_vector", lambda: reindex(store, "vector", now=now_micros())),
        ("verify", lambda: done.wrong.extend(verify(store, block_writers=False).wrong)),
    )
    while time.monotonic() < deadline:
        for name, step in steps:
            started = time.monotonic()
            step()
            done.rounds.setdefault(name, []).append(time.monotonic() - started)
        time.sleep(_PAUSE_SECONDS)


def _read(store: Store, done: Done, deadline: float) -> None:
    """Run read transactions of five seconds each; each must see a single state."""
    while time.monotonic() < deadline:
        with store.reading() as tx:
            until = min(deadline, time.monotonic() + _READER_SECONDS)
            seen = set()
            while time.monotonic() < until:
                seen.add(tx.connection.exec_driver_sql("SELECT count(*) FROM messages").scalar_one())
                time.sleep(0.05)
            if len(seen) > 1:
                done.wrong.append(f"a reader saw {len(seen)} states in one transaction")


def _conclude(
    result: Result, engine: str, found: Sequence[Done], stored: int, wrong: Sequence[str], seconds: float
) -> None:
    """Add the figures and goals of one engine. Those of PostgreSQL begin with its name."""
    prefix, of = ("postgres_", "PostgreSQL: ") if engine == "postgres" else ("", "")
    writers = [done for done in found if done.part == "write"]
    waits = [wait for done in writers for wait in done.waits]
    whole = [time_taken for done in writers for time_taken in done.whole]
    errors = Counter(error for done in found for error in done.errors)
    wrong = [*wrong, *(line for done in found for line in done.wrong)]
    sent = sum(done.messages for done in writers)
    result.add(f"{prefix}transactions", len(whole))
    result.add(f"{prefix}transactions_per_second", rounded(len(whole) / seconds), "1/s")
    result.add(f"{prefix}messages", sent)
    result.add(f"{prefix}messages_stored", stored)
    result.add(f"{prefix}errors", sum(errors.values()))
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        result.add(f"{prefix}transaction_{name}", rounded(percentile(whole, share)), "s")
    result.add(f"{prefix}longest_wait_for_the_lock", rounded(max(waits)), "s")
    maintained = next(done for done in found if done.part == "maintain")
    for name, times in maintained.rounds.items():
        result.add(f"{prefix}{name}_rounds", len(times))
        result.add(f"{prefix}{name}_longest", rounded(max(times)), "s")
    result.notes += [f"{of}{count} times: {error}" for error, count in errors.most_common(10)]
    result.notes += [f"{of}wrong: {line}" for line in wrong]
    p99 = result.figures[f"{prefix}transaction_p99"]
    missing = abs(sent - stored) + len(wrong)
    result.goals += [
        Goal(what=f"{of}lock errors", relation="==", goal=0, figure=result.figures[f"{prefix}errors"]),
        Goal(what=f"{of}messages missing or things wrong", relation="==", goal=0, figure=missing),
        Goal(what=f"{of}one transaction, p99", relation="<", goal=1.0, figure=p99, unit="s"),
    ]


if __name__ == "__main__":
    run(main)
