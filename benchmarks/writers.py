"""Measure lock errors and waits while many processes write to one workspace, with maintenance and a long-running
reader.

Every writer takes messages through all stages (store, chunk, embed by hash, index) with the pipeline's own functions.
Each write transaction is timed from the request for the lock to the commit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.embedders import HashEmbedder
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.local import LocalInbox, NoWorkingMemory, store_messages
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.texts import Texts, load_texts
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks
from memory.pipeline.indexing import index_chunks
from reverie.clock import now_micros
from reverie.errors import ReverieError
from storage.recall.reindex import reindex
from storage.store import new_serial
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.upkeep.maintenance import optimize
from storage.upkeep.verify import verify

WORKSPACE: Final = "bench"
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
    """Measure and write the result."""
    options = _options()
    writers = int(value_or_default(options.writers, quick=options.quick, tiny=4, full=16))
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=3, full=20)
    result = Result(benchmark="writers", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    texts = load_texts(options.data, 2_000, seed=options.seed)
    result.settings.update(writers=writers, seconds=seconds, texts=texts.source, batch_messages=_BATCH_MESSAGES)
    folder = Path(tempfile.mkdtemp(prefix="rvb-writers-"))
    try:
        found = _run(folder, texts, writers, seconds, Progress())
        stores = Stores(folder)
        verdict = verify(stores.workspace(WORKSPACE))
        stores.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _conclude(result, found, verdict.counts["messages"], verdict.wrong, seconds)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("writers", __doc__)
    options.add_argument("--writers", type=int, help="processes that write (16; 4 with --quick)")
    options.add_argument("--seconds", type=float, help="seconds (20; 3 with --quick)")
    return options.parse_args()


def _run(folder: Path, texts: Texts, writers: int, seconds: float, tell: Progress) -> list[Done]:
    """Start all processes at the same time and collect their measurements."""
    stores = Stores(folder)
    stores.workspace(WORKSPACE)
    stores.close()
    context = multiprocessing.get_context("spawn")
    results: Queue[Done] = context.Queue()
    gate = context.Barrier(writers + 3)
    works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(_write, (number, texts)) for number in range(writers)]
    works += [(_maintain, ()), (_read, ())]
    processes = [
        context.Process(target=_part, args=(work, folder, seconds, gate, results, *more), daemon=True)
        for work, more in works
    ]
    try:
        for process in processes:
            process.start()
        gate.wait(_START_SECONDS)
        tell.step(f"{writers} writers, one maintenance process and one reader, for {seconds:g} s")
        found = [results.get(timeout=seconds + 90) for _ in processes]
        for process in processes:
            process.join(10)
        return found
    finally:
        for process in processes:
            process.kill()


def _part(work: Callable[..., None], folder: Path, seconds: float, gate: Any, results: Queue[Done], *more: Any) -> None:
    """Entry point of each process: open the store, wait for the others, work until the time is up."""
    done = Done(part=work.__name__.removeprefix("_"))
    stores = Stores(folder)
    store = TimedStore(stores.workspace(WORKSPACE), done)
    gate.wait(_START_SECONDS)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            work(store, done, deadline, *more)
        except ReverieError as error:
            done.errors.append(f"{type(error).__name__}: {error}")
    stores.close()
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


def _conclude(result: Result, found: Sequence[Done], stored: int, wrong: Sequence[str], seconds: float) -> None:
    writers = [done for done in found if done.part == "write"]
    waits = [wait for done in writers for wait in done.waits]
    whole = [time_taken for done in writers for time_taken in done.whole]
    errors = Counter(error for done in found for error in done.errors)
    wrong = [*wrong, *(line for done in found for line in done.wrong)]
    sent = sum(done.messages for done in writers)
    result.add("transactions", len(whole))
    result.add("transactions_per_second", rounded(len(whole) / seconds), "1/s")
    result.add("messages", sent)
    result.add("messages_stored", stored)
    result.add("errors", sum(errors.values()))
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        result.add(f"transaction_{name}", rounded(percentile(whole, share)), "s")
    result.add("longest_wait_for_the_lock", rounded(max(waits)), "s")
    maintained = next(done for done in found if done.part == "maintain")
    for name, times in maintained.rounds.items():
        result.add(f"{name}_rounds", len(times))
        result.add(f"{name}_longest", rounded(max(times)), "s")
    result.notes += [f"{count} times: {error}" for error, count in errors.most_common(10)]
    result.notes += [f"wrong: {line}" for line in wrong]
    p99 = result.figures["transaction_p99"]
    result.goals += [
        Goal(what="lock errors", relation="==", goal=0, figure=result.figures["errors"]),
        Goal(what="messages missing or things wrong", relation="==", goal=0, figure=abs(sent - stored) + len(wrong)),
        Goal(what="one transaction, p99", relation="<", goal=1.0, figure=p99, unit="s"),
    ]


if __name__ == "__main__":
    run(main)
