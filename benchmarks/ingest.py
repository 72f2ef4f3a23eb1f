"""Measure messages per second from enqueue to searchable, compared with the bare model.

Reverie, through the real queue, and the bare `model.encode` of the very chunks that Reverie stores alternate in one
run, each alone on the machine: bare, Reverie, bare, Reverie.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.bare import BATCH_TEXTS, Bare, run_bare
from benchmarks.harness.local import stored_chunks
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, median, rounded
from benchmarks.harness.stack import Stack
from benchmarks.harness.texts import Texts, load_texts

BATCH_MESSAGES: Final = 100
_ROUND_TIMEOUT_SECONDS: Final = 900.0
_DTYPE = re.compile(r" (\S+) on \S+:")


def main() -> None:
    """Measure and write the result."""
    options = _options()
    turns = int(value_or_default(options.turns, quick=options.quick, tiny=60, full=5_000))
    rounds = int(value_or_default(options.rounds, quick=options.quick, tiny=1, full=3))
    texts = load_texts(options.data, turns, seed=options.seed)
    result = Result.of("ingest", options)
    result.settings.update(turns=turns, rounds=rounds, texts=texts.source, batch_messages=BATCH_MESSAGES)
    tell = Progress()
    with tempfile.TemporaryDirectory(prefix="rvb-ingest-") as name:
        chunks = stored_chunks(texts.payloads(), Path(name))
        bares, rates = [], []
        for number in range(1, rounds + 1):
            bares.append(run_bare(chunks, Path(name)))
            tell.step(f"round {number}: bare model {turns / bares[-1].seconds:,.0f} messages/s")
            rates.append(_reverie_round(texts, chunks, bares[-1], number, result))
            tell.step(f"round {number}: Reverie {rates[-1]:,.0f} messages/s")
    _conclude(result, turns, len(chunks), bares, rates)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("ingest", __doc__)
    options.add_argument("--turns", type=int, help="messages per round (5,000; 60 with --quick)")
    options.add_argument("--rounds", type=int, help="number of rounds (3; 1 with --quick)")
    return options.parse_args()


def _reverie_round(texts: Texts, chunks: Sequence[str], bare: Bare, number: int, result: Result) -> float:
    payloads = texts.payloads()
    with Stack() as stack, stack.watch() as watch:
        producer = stack.producer()
        stack.inbox().now_micros()
        started = time.monotonic()
        for start in range(0, len(payloads), BATCH_MESSAGES):
            producer.enqueue(payloads[start : start + BATCH_MESSAGES])
        enqueued = time.monotonic()
        ended = watch.wait_searchable(len(payloads), _ROUND_TIMEOUT_SECONDS)
        stored = [str(row[0]) for row in watch.rows("SELECT text FROM chunks")]
        if sorted(stored) != sorted(chunks):
            raise RuntimeError(
                "Reverie stored different chunks than the bare model embedded: the two cannot be compared"
            )
        spoke = _DTYPE.search(stack.embedder)
        if spoke is None or spoke.group(1) != bare.dtype:
            result.notes.append(f"round {number}: Reverie ran {stack.embedder!r}, the bare model {bare.dtype}")
        result.settings["embedder"] = stack.embedder
    result.figures.setdefault("reverie_enqueue_seconds", []).append(rounded(enqueued - started))
    return len(payloads) / (ended - started)


def _conclude(result: Result, turns: int, chunks: int, bares: Sequence[Bare], rates: Sequence[float]) -> None:
    bare_rates = [turns / bare.seconds for bare in bares]
    ratios = [rate / bare for rate, bare in zip(rates, bare_rates, strict=True)]
    result.settings.update(bare=bares[0].what, bare_dtype=bares[0].dtype, bare_batch_texts=BATCH_TEXTS, chunks=chunks)
    result.add("reverie_rounds", [rounded(rate) for rate in rates], "messages/s")
    result.add("bare_rounds", [rounded(rate) for rate in bare_rates], "messages/s")
    result.add("reverie", median(rates), "messages/s")
    result.add("bare", median(bare_rates), "messages/s")
    result.add("share_of_bare", median(ratios))
    share = result.figures["share_of_bare"]
    result.goals.append(Goal(what="share of the bare model's rate", relation=">=", goal=0.85, figure=share))


if __name__ == "__main__":
    run(main)
