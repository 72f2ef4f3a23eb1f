"""Measure messages per second from enqueue to searchable, compared with the bare model and other memory systems.

Reverie, through the real queue, and the bare `model.encode` of the very chunks that Reverie stores alternate in one
run, each alone on the machine: bare, Reverie, bare, Reverie. The peers follow in each round, each in an environment of
its own.
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
from benchmarks.harness.figures import median, rounded
from benchmarks.harness.local import stored_chunks
from benchmarks.harness.options import ROOT, parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import Stack
from benchmarks.harness.texts import Texts, load_texts
from benchmarks.peers.run import PEERS, PeerFigure, run_peer

BATCH_MESSAGES: Final = 100
_ROUND_TIMEOUT_SECONDS: Final = 900.0
_DTYPE = re.compile(r" (\S+) on \S+:")


def main() -> None:
    """Measure and write the result."""
    options = _options()
    turns = int(value_or_default(options.turns, quick=options.quick, tiny=60, full=5_000))
    rounds = int(value_or_default(options.rounds, quick=options.quick, tiny=1, full=3))
    texts = load_texts(options.data, turns, seed=options.seed)
    result = Result(benchmark="ingest", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings.update(turns=turns, rounds=rounds, texts=texts.source, batch_messages=BATCH_MESSAGES)
    tell = Progress()
    peer_texts = [f"{turn.name}: {turn.text}" for turn in texts.turns[: options.peer_turns]]
    with tempfile.TemporaryDirectory(prefix="rvb-ingest-") as name:
        chunks = stored_chunks(texts.payloads(), Path(name))
        bares, rates, peers = [], [], dict[str, list[PeerFigure]]()
        for number in range(1, rounds + 1):
            bares.append(run_bare(chunks, Path(name)))
            tell.step(f"round {number}: bare model {turns / bares[-1].seconds:,.0f} messages/s")
            rates.append(_reverie_round(texts, chunks, bares[-1], number, result))
            tell.step(f"round {number}: Reverie {rates[-1]:,.0f} messages/s")
            if options.peers is not None:
                _peers_round(options.peers, peer_texts, peers, tell)
    _conclude(result, turns, len(chunks), bares, rates, peers)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("ingest", __doc__)
    options.add_argument("--turns", type=int, help="messages per round (5,000; 60 with --quick)")
    options.add_argument("--rounds", type=int, help="number of rounds (3; 1 with --quick)")
    options.add_argument(
        "--peers",
        type=Path,
        nargs="?",
        const=ROOT / ".venv-peers" / "bin" / "python",
        help="also measure the peers, with this Python (created by `python -m benchmarks.peers.install`)",
    )
    options.add_argument("--peer-turns", type=int, default=1_000, help="messages that each peer stores per round")
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


def _peers_round(python: Path, texts: Sequence[str], peers: dict[str, list[PeerFigure]], tell: Progress) -> None:
    for peer in PEERS:
        done = peers.setdefault(peer, [])
        if done and done[-1].why_not:
            continue
        figure = run_peer(peer, python, texts)
        done.append(figure)
        tell.step(f"    {peer}: {figure.why_not or f'{figure.messages_per_second:,.0f} messages/s'}")


def _conclude(
    result: Result,
    turns: int,
    chunks: int,
    bares: Sequence[Bare],
    rates: Sequence[float],
    peers: dict[str, list[PeerFigure]],
) -> None:
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
    medians: dict[str, float | None] = {}
    for peer in PEERS:
        measured = [figure.messages_per_second for figure in peers.get(peer, []) if not figure.why_not]
        medians[peer] = median(measured) if measured else None
        result.add(peer, medians[peer], "messages/s")
        if measured:
            result.settings[peer] = peers[peer][0].package
    _peer_goals(result, peers, medians)


def _peer_goals(result: Result, peers: dict[str, list[PeerFigure]], medians: dict[str, float | None]) -> None:
    best = max((rate for rate in medians.values() if rate), default=None)
    result.goals.append(
        Goal(
            what="times the rate of the best peer measured",
            relation=">=",
            goal=3.0,
            figure=rounded(result.figures["reverie"] / best) if best else None,
            note="" if best else "no peer was measured",
        )
    )
    targets = (("txtai", 3.0), ("langgraph_batch", 5.0), ("langgraph_single", 5.0), ("mem0", 5.0))
    for peer, goal in targets:
        rate = medians[peer]
        why = next((figure.why_not for figure in peers.get(peer, []) if figure.why_not), "run without --peers")
        result.goals.append(
            Goal(
                what=f"times the rate of {peer.replace('_', ', ')}",
                relation=">=",
                goal=goal,
                figure=rounded(result.figures["reverie"] / rate) if rate else None,
                note="" if rate else f"{peer} was not measured: {why}",
            )
        )


if __name__ == "__main__":
    run(main)
