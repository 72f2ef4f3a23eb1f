"""Measure how fast recall answers from stores of 6,000 to 1,000,000 chunks: in process, over HTTP, and during ingest.

Hybrid recall as an agent calls it, including the embedding of the question, one question after the other. The stores
contain synthetic conversations. How much of the exact result the approximations for large stores find is measured as
well.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.table import Table

from benchmarks.harness.haystack import client_of
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.recall_process import (
    Ask,
    Asked,
    InProcess,
    Plan,
    Timings,
    memory,
    run_in_process,
    timed,
    warm_up,
)
from benchmarks.harness.recall_stores import BuiltStore, StoreSize, built_store, default_embedder
from benchmarks.harness.result import Goal, Result, console, percentile, rounded, shown
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import Texts, load_texts, payload_of
from benchmarks.harness.watch import Watch
from reverie.contract import MessagePayload

_BATCH_MESSAGES: Final = 100
# Enough for every stage to always have work, and little enough to be finished in seconds afterwards.
BACKLOG_MESSAGES: Final = 2_000
# The stages are at full speed once this many are through.
_UNDER_WAY_MESSAGES: Final = 300
_START_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 120.0
_NAP_SECONDS: Final = 0.02


class FullSpeed:
    """Sends messages of one agent, batch after batch, for the duration of the `with` statement."""

    def __init__(self, stack: Stack, texts: Texts, *, agent: str, backlog: int = BACKLOG_MESSAGES) -> None:
        self._stack = stack
        self._texts = texts
        self._agent = agent
        self._backlog = backlog
        self._halt = threading.Event()
        self._under_way = threading.Event()
        self._thread = threading.Thread(target=self._send, name="full-speed", daemon=True)
        self._failed: Exception | None = None
        self.searchable = 0
        self.seconds = 0.0

    def __enter__(self) -> Self:
        """Start, and return once the first messages are searchable. Raises TimeoutError: if none is in time."""
        self._thread.start()
        if not self._under_way.wait(_START_SECONDS):
            self._halt.set()
            raise TimeoutError(f"no message became searchable within {_START_SECONDS:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop sending and wait until everything is searchable."""
        self._halt.set()
        self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    @property
    def rate(self) -> float:
        """Return how many messages became searchable per second while the load ran."""
        return self.searchable / self.seconds if self.seconds else 0.0

    def _send(self) -> None:
        try:
            with self._stack.watch(WORKSPACE) as watch:
                self._send_until_halted(watch)
        except Exception as error:  # noqa: BLE001 - the boundary of the thread: `__exit__` raises it
            self._failed = error
            self._under_way.set()

    def _send_until_halted(self, watch: Watch) -> None:
        producer = self._stack.producer(WORKSPACE)
        before = watch.messages()
        sent = done = base = 0
        started = 0.0
        while not self._halt.is_set():
            done = watch.messages() - before - watch.waiting()
            if not started and done >= min(_UNDER_WAY_MESSAGES, self._backlog // 2):
                started, base = time.monotonic(), done
                self._under_way.set()
            if sent - done >= self._backlog:
                self._halt.wait(_NAP_SECONDS)
                continue
            producer.enqueue([self._payload(number) for number in range(sent, sent + _BATCH_MESSAGES)])
            sent += _BATCH_MESSAGES
        self.searchable, self.seconds = done - base, time.monotonic() - (started or time.monotonic())
        watch.wait_searchable(before + sent, _DRAIN_SECONDS)

    def _payload(self, number: int) -> MessagePayload:
        """Yield the texts over and over, each time in other sessions: a text repeated in its session makes no new
        chunk.
        """
        turns = self._texts.turns
        return payload_of(turns[number % len(turns)], agent=self._agent, label=f"#{number // len(turns)}")


SMALL: Final = StoreSize(6_000)
MANY_AGENTS: Final = StoreSize(10_000, 100)
LARGE: Final = StoreSize(1_000_000)
SIZES: Final = (SMALL, StoreSize(100_000), MANY_AGENTS, LARGE)
_TINY: Final = (StoreSize(120), StoreSize(40, 3))
# Goals in milliseconds.
_SMALL_GOALS: Final = {"in_process": (8.0, 12.0), "http": (10.0, 15.0)}
_LARGE_GOALS: Final = (60.0, 90.0)
_MOST_TIMES_SMALL: Final = 1.5
_MOST_TIMES_IDLE: Final = 3.0
_LEAST_OF_EXACT: Final = 0.98
_WARM_QUESTIONS: Final = 20
# Long enough for some dozen batches of the embedder.
_BESIDE_INGEST_SECONDS: Final = 15.0
_STREAM_MESSAGES: Final = 5_000
_TINY_BACKLOG: Final = 40
_MIB: Final = 2**20


def main() -> None:
    """Measure and write the result."""
    options = _options()
    sizes: Sequence[StoreSize] = options.sizes or (_TINY if options.quick else SIZES)
    result = Result.of("recall_speed", options)
    count = int(value_or_default(options.queries, quick=options.quick, tiny=10, full=200))
    warm = min(_WARM_QUESTIONS, count)
    result.settings.update(sizes=[str(size) for size in sizes], queries=count, warm=warm)
    stream = load_texts(options.data, _STREAM_MESSAGES, seed=options.seed)
    result.settings["stream"] = stream.source
    embedder = default_embedder()
    tell = Progress()
    for number, size in enumerate(sizes):
        with built_store(
            size, embedder, questions=warm + count, seed=options.seed, keep=options.stores, tell=tell
        ) as store:
            tell.step(f"{size}: built")
            result.add(f"{size}_disk", rounded(store.bytes_on_disk() / _MIB), "MiB")
            _in_process(store, size, warm, options, result)
            tell.step(f"{size}: measured in process")
            _over_http(store, size, warm, result, stream if number == 0 else None)
            tell.step(f"{size}: measured over HTTP")
    _goals(result, sizes)
    _print(result, sizes)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("recall_speed", __doc__)
    options.add_argument(
        "--sizes", nargs="+", type=StoreSize.parse, help="CHUNKSxAGENTS; ingest runs with the first size"
    )
    options.add_argument("--queries", type=int, help="different questions for each store (200; 10 with --quick)")
    options.add_argument("--exact", type=int, default=50, help="how many of them are compared with the exact result")
    options.add_argument("--limit", type=int, default=5, help="results per recall")
    options.add_argument("--stores", type=Path, help="keep the large stores in this folder and reuse them")
    return options.parse_args()


def _in_process(store: BuiltStore, size: StoreSize, warm: int, options: argparse.Namespace, result: Result) -> None:
    plan = Plan(
        data=str(store.folder),
        workspace=WORKSPACE,
        warm=store.questions[:warm],
        questions=store.questions[warm:],
        limit=options.limit,
        exact=options.exact,
    )
    with tempfile.TemporaryDirectory(prefix="rvb-plan-") as name:
        found: InProcess = run_in_process(plan, Path(name))
    _add_timings(result, f"{size}_in_process", found.recall)
    _add_timings(result, f"{size}_of_it_embedding", found.embed)
    _add_warm_up(result, f"{size}_in_process", found.warm_up.first_seconds, found.warm_up.ready_seconds)
    result.add(f"{size}_in_process_memory_before", rounded(found.memory_before / _MIB), "MiB")
    result.add(f"{size}_in_process_memory", rounded(found.memory_after / _MIB), "MiB")
    if found.exact is not None:
        result.add(f"{size}_recall_at_10_of_exact_vector", rounded(found.exact.vector))
        result.add(f"{size}_recall_at_10_of_exact_hybrid", rounded(found.exact.hybrid))
        result.settings["exact_questions"] = found.exact.questions


def _over_http(store: BuiltStore, size: StoreSize, warm: int, result: Result, stream: Texts | None) -> None:
    stack = Stack()
    store.show(stack.data)
    with stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer: recall over HTTP cannot be measured")
        result.settings["embedder"] = stack.embedder
        server = next(process.pid for process in stack.processes() if process.name == "server" and process.pid)
        with _asking(stack, store.questions, result.settings["limit"]) as ask:
            # A question to another workspace loads the model, so that the first answers measure the building of the
            # index only.
            with _asking(stack, [_ELSEWHERE], 1, workspace="warm-up") as ask_elsewhere:
                ask_elsewhere(_ELSEWHERE)
            result.add(f"{size}_server_memory_before", rounded(memory(server) / _MIB), "MiB")
            warmth = warm_up(ask, store.questions)
            timed(ask, store.questions[:warm])
            timings = timed(ask, store.questions[warm:])
            result.add(f"{size}_server_memory", rounded(memory(server) / _MIB), "MiB")
            _add_warm_up(result, f"{size}_http", warmth.first_seconds, warmth.ready_seconds)
            _add_timings(result, f"{size}_http", timings)
            if stream is not None:
                _beside_ingest(stack, stream, size, store.questions[warm:], ask, result)


_ELSEWHERE: Final = Asked("bench", "who is awake?")


@contextmanager
def _asking(stack: Stack, questions: Sequence[Asked], limit: int, *, workspace: str = WORKSPACE) -> Iterator[Ask]:
    """Recalls over HTTP, with one client per agent that keeps its connection."""
    with ExitStack() as clients:
        agents = dict.fromkeys(question.agent for question in questions)
        by_agent = {agent: clients.enter_context(client_of(stack, agent, workspace)) for agent in agents}
        yield lambda question: by_agent[question.agent].recall(question.text, limit=limit).degraded


def _beside_ingest(
    stack: Stack, texts: Texts, size: StoreSize, questions: Sequence[Asked], ask: Ask, result: Result
) -> None:
    """Recall again during ingest at full speed: first of another agent's messages, then of the same agent's."""
    backlog, seconds = (_TINY_BACKLOG, 0.0) if result.quick else (BACKLOG_MESSAGES, _BESIDE_INGEST_SECONDS)
    for whose, agent in (("another_agent", "somebody-else"), ("same_agent", questions[0].agent)):
        with FullSpeed(stack, texts, agent=agent, backlog=backlog) as stream:
            timings = timed(ask, questions, at_least_seconds=seconds)
        _add_timings(result, f"{size}_during_ingest_of_{whose}", timings)
        result.add(f"{size}_ingest_of_{whose}", rounded(stream.rate), "messages/s")
        ratio = percentile(timings.seconds, 0.95) * 1_000 / result.figures[f"{size}_http_p95"]
        result.add(f"{size}_during_ingest_of_{whose}_times_idle_p95", rounded(ratio))


def _add_timings(result: Result, name: str, timings: Timings) -> None:
    for label, share in (("p50", 0.5), ("p95", 0.95)):
        result.add(f"{name}_{label}", rounded(percentile(timings.seconds, share) * 1_000), "ms")
    if timings.degraded:
        result.notes.append(f"{name}: {timings.degraded} responses were degraded: {timings.why}")


def _add_warm_up(result: Result, name: str, first: Sequence[float], ready: Sequence[float]) -> None:
    """Add the time of the first answer to an agent in a fresh process (median over the agents), and of the first full
    one.
    """
    result.add(f"{name}_cold", rounded(percentile(first, 0.5) * 1_000), "ms")
    result.add(f"{name}_cold_longest", rounded(max(first) * 1_000), "ms")
    result.add(f"{name}_ready", rounded(max(ready)), "s")


def _goals(result: Result, sizes: Sequence[StoreSize]) -> None:
    """Return the goals for the stores of this run."""
    if SMALL in sizes:
        for way, goals in _SMALL_GOALS.items():
            for label, goal in zip(("p50", "p95"), goals, strict=True):
                _at_most(result, f"{SMALL}_{way}_{label}", goal, "ms")
    if SMALL in sizes and MANY_AGENTS in sizes:
        for name in (f"{way}_{label}" for way in _SMALL_GOALS for label in ("p50", "p95")):
            times = result.figures[f"{MANY_AGENTS}_{name}"] / result.figures[f"{SMALL}_{name}"]
            result.add(f"{MANY_AGENTS}_{name}_times_that_of_{SMALL}", rounded(times))
            _at_most(result, f"{MANY_AGENTS}_{name}_times_that_of_{SMALL}", _MOST_TIMES_SMALL)
    if LARGE in sizes:
        for label, goal in zip(("p50", "p95"), _LARGE_GOALS, strict=True):
            _at_most(result, f"{LARGE}_in_process_{label}", goal, "ms")
        for kind in ("vector", "hybrid"):
            name = f"{LARGE}_recall_at_10_of_exact_{kind}"
            figure = result.figures.get(name)
            note = "" if figure is not None else "it was run with --exact 0"
            result.goals.append(
                Goal(what=_readable(name), relation=">=", goal=_LEAST_OF_EXACT, figure=figure, note=note)
            )
    for whose in ("another_agent", "same_agent"):
        _at_most(result, f"{sizes[0]}_during_ingest_of_{whose}_times_idle_p95", _MOST_TIMES_IDLE)


def _at_most(result: Result, name: str, goal: float, unit: str = "") -> None:
    result.goals.append(Goal(what=_readable(name), relation="<=", goal=goal, figure=result.figures[name], unit=unit))


def _readable(name: str) -> str:
    """Return `10000x100_http_p95` in readable form."""
    size, _, rest = name.partition("_")
    chunks, _, agents = size.partition("x")
    held = f"{int(chunks):,} chunks" if agents == "1" else f"{agents} agents of {int(chunks):,} chunks"
    return f"{held}: {rest.replace('_', ' ')}"


def _print(result: Result, sizes: Sequence[StoreSize]) -> None:
    table = Table(title="recall, p50 / p95 in ms", title_justify="left", header_style="bold")
    for column in ("store", "in process", "over HTTP", "first answer", "full after", "memory", "of exact", "disk"):
        table.add_column(column)
    for size in sizes:
        got = result.figures
        table.add_row(
            f"{size.total:,} chunks" + (f", {size.agents} agents" if size.agents > 1 else ""),
            f"{shown(got[f'{size}_in_process_p50'])} / {shown(got[f'{size}_in_process_p95'])}",
            f"{shown(got[f'{size}_http_p50'])} / {shown(got[f'{size}_http_p95'])}",
            f"{shown(got[f'{size}_http_cold'])} ms",
            f"{shown(got[f'{size}_http_ready'])} s",
            f"{shown(got[f'{size}_server_memory_before'])} to {shown(got[f'{size}_server_memory'])} MiB",
            shown(got.get(f"{size}_recall_at_10_of_exact_hybrid")),
            f"{shown(got[f'{size}_disk'])} MiB",
        )
    console.print(table)


if __name__ == "__main__":
    run(main)
