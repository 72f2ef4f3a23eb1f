"""Compare SQLite files with a PostgreSQL database: ingest, the wait of single messages, and recall, in one run.

Both run the same stack on the same messages, one after the other in each round. The database runs on the same machine,
so this shows what the engine costs, not what a machine of its own would add.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.harness.figures import median, percentile, rounded
from benchmarks.harness.haystack import client_of
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.postgres import running_postgres
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Result, settings_of
from benchmarks.harness.stack import Stack
from benchmarks.harness.texts import Texts, load_texts
from reverie import Reverie

_AGENT: Final = "bench"
_BATCH: Final = 100
_SECONDS: Final = 900.0
_SINGLES: Final = 20
_RECALLS: Final = 200
ENGINES: Final = ("sqlite", "postgres")


def main() -> None:
    """Measure and write the result."""
    options = _options()
    turns = int(value_or_default(options.turns, quick=options.quick, tiny=60, full=3_000))
    rounds = int(value_or_default(options.rounds, quick=options.quick, tiny=1, full=3))
    texts = load_texts(options.data, turns, seed=options.seed)
    result = Result(benchmark="engines", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings.update(turns=turns, rounds=rounds, texts=texts.source)
    found: dict[str, dict[str, list[float]]] = {engine: {} for engine in ENGINES}
    answers: dict[str, list[list[str]]] = {engine: [] for engine in ENGINES}
    tell = Progress()
    with ExitStack() as running:
        url = options.database or running.enter_context(running_postgres())
        for number in range(1, rounds + 1):
            for engine in ENGINES:
                figures, hits = _round(engine, url, f"round{number}", texts, recalls=20 if options.quick else _RECALLS)
                answers[engine].append(hits)
                for name, figure in figures.items():
                    found[engine].setdefault(name, []).append(figure)
                tell.step(f"round {number}, {engine}: {figures['ingest']:,.0f} messages/s")
    _conclude(result, found, answers)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("engines", __doc__)
    options.add_argument("--turns", type=int, help="messages per round (3,000; 60 with --quick)")
    options.add_argument("--rounds", type=int, help="number of rounds (3; 1 with --quick)")
    options.add_argument("--database", help="an empty PostgreSQL database (one is started without it)")
    return options.parse_args()


def _round(engine: str, url: str, workspace: str, texts: Texts, *, recalls: int) -> tuple[dict[str, float], list[str]]:
    """Measure one engine; return the figures, and the texts that the recalls found."""
    payloads = texts.payloads(agent=_AGENT)
    environment = {"REVERIE_DATABASE": url if engine == "postgres" else ""}
    with ExitStack() as held:
        stack = held.enter_context(Stack(env=environment))
        watch = held.enter_context(stack.watch(workspace))
        producer = stack.producer(workspace)
        before = watch.bytes_stored()
        began = time.monotonic()
        for start in range(0, len(payloads), _BATCH):
            producer.enqueue(payloads[start : start + _BATCH])
        ended = watch.wait_searchable(len(payloads), _SECONDS)
        bytes_a_chunk = (watch.bytes_stored() - before) / watch.number("SELECT count(*) FROM chunks")
        client = held.enter_context(client_of(stack, _AGENT, workspace))
        singles = [_timed(partial(_say, client, number)) for number in range(_SINGLES)]
        questions = [turn.text for turn in texts.turns[:recalls]]
        client.recall(questions[0])  # builds the index
        hits: list[str] = []
        times = [_timed(partial(_note_found, client, question, hits)) for question in questions]
    return {
        "ingest": len(payloads) / (ended - began),
        "stored": bytes_a_chunk,
        "searchable_p50": percentile(singles, 0.5),
        "recall_p50": percentile(times, 0.5),
        "recall_p95": percentile(times, 0.95),
    }, hits


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _say(client: Reverie, number: int) -> None:
    client.ingest(
        "singles",
        [{"role": "user", "content": f"Shelf {number} holds the drawings."}],
        wait="searchable",
        timeout_seconds=60,
    )


def _note_found(client: Reverie, question: str, hits: list[str]) -> None:
    hits.append("|".join(result.text for result in client.recall(question).results))


def _conclude(result: Result, found: dict[str, dict[str, list[float]]], answers: dict[str, list[list[str]]]) -> None:
    units = {
        "ingest": "messages/s",
        "searchable_p50": "ms",
        "recall_p50": "ms",
        "recall_p95": "ms",
        "stored": "bytes a chunk",
    }

    for name, unit in units.items():
        for engine in ENGINES:
            result.add(f"{engine}_{name}", rounded(median(found[engine][name])), unit)
        ratios = [theirs / ours for ours, theirs in zip(found["sqlite"][name], found["postgres"][name], strict=True)]
        result.add(f"{name}_of_postgres_to_sqlite", rounded(median(ratios)))
    result.add("equal_recalls", rounded(_share_of_equal(answers)))


def _share_of_equal(answers: dict[str, list[list[str]]]) -> float:
    pairs: Sequence[tuple[str, str]] = [
        pair
        for ours, theirs in zip(answers["sqlite"], answers["postgres"], strict=True)
        for pair in zip(ours, theirs, strict=True)
    ]
    return sum(one == other for one, other in pairs) / len(pairs)


if __name__ == "__main__":
    run(main)
