"""Measure how long it takes to read the longest texts, and how this grows with their length.

The texts are made to be slow to read: up to a megabyte of what a pattern begins with. Each function reads each
text in two lengths, one four times the other. If its time grows in proportion to the length, it takes 4 times as long;
if it grows with the square of the length, 16 times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from adapters.tokens import EstimatedTokens, build_token_counter
from benchmarks.harness import hostile_texts
from benchmarks.harness.figures import rounded
from benchmarks.harness.hostile_texts import repeated
from benchmarks.harness.options import parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from memory.memories.concept_tags import concept_tags
from memory.memories.patterns.finding import find_statements
from memory.memories.patterns.sentences import MAX_MESSAGE_CHARACTERS
from memory.memories.secrets import looks_secret
from memory.pipeline.cutting import normalise, split
from reverie.contract import MAX_CONTENT_BYTES
from worker.settings import load_settings

_LENGTHS_APART: Final = 4
# Half-way between proportional and quadratic: measurements of a few milliseconds vary.
_GOAL_GROWTH: Final = 8
# A shorter time is not compared: it is mostly that of the call.
_MIN_SECONDS: Final = 0.0005
# A short text is read again and again for this long, because all of a few readings may have been disturbed.
_REPEAT_SECONDS: Final = 0.1
_TINY_BYTES: Final = 4_000
_TOKENS: Final = 100_000
_TURN: Final = "We rowed across the harbour again and it rained all day long."


@dataclass(frozen=True, slots=True)
class _Reader:
    """A function that reads any text, with the pieces that are slow to read and the time the longest text may take."""

    name: str
    what: str
    read: Callable[[str], object]
    pieces: Sequence[str]
    size_bytes: int
    goal_seconds: float


_READERS: Final = (
    _Reader(
        "chunk", "splitting the longest message", lambda text: split(normalise(text)), hostile_texts.CHUNKED,
        MAX_CONTENT_BYTES, 5.0,
    ),
    _Reader("secrets", "looking for secrets", looks_secret, hostile_texts.SEARCHED_FOR_SECRETS, 200_000, 5.0),
    _Reader(
        "statements", "looking for statements", lambda text: find_statements(text, at=0),
        hostile_texts.SEARCHED_FOR_STATEMENTS, MAX_MESSAGE_CHARACTERS, 0.2,
    ),
    _Reader("tags", "deriving tags", concept_tags, hostile_texts.TAGGED, 1_000_000, 0.3),
)  # fmt: skip


def main() -> None:
    """Measure and write the result."""
    options = _options()
    result = Result(benchmark="long_texts", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    runs = 1 if options.quick else options.runs
    tell = Progress()
    for reader in _READERS:
        _measure(reader, min(reader.size_bytes, _TINY_BYTES) if options.quick else reader.size_bytes, runs, result)
        tell.step(f"{reader.name} measured")
    _measure_tokens(1_000 if options.quick else _TOKENS, runs, result)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("long_texts", __doc__)  # --data is accepted but unused: these texts are not conversations
    options.add_argument("--runs", type=int, default=5, help="how often each text is read at least; the fastest counts")
    return options.parse_args()


def _measure(reader: _Reader, size_bytes: int, runs: int, result: Result) -> None:
    slowest, growth = 0.0, 0.0
    for piece in reader.pieces:
        short, long = repeated(piece, size_bytes // _LENGTHS_APART), repeated(piece, size_bytes)
        seconds = _fastest(reader.read, long, runs)
        slowest = max(slowest, seconds)
        growth = max(growth, seconds / max(_fastest(reader.read, short, runs), _MIN_SECONDS))
    times = f"times the time for {_LENGTHS_APART} times the length"
    result.settings[f"{reader.name}_bytes"] = size_bytes
    result.add(f"{reader.name}_slowest", rounded(slowest), "s")
    result.add(f"{reader.name}_growth", rounded(growth), times)
    texts = f"slowest of {len(reader.pieces)} texts of {size_bytes:,} bytes"
    result.goals += [
        Goal(what=f"{reader.what}, {texts}", relation="<", goal=reader.goal_seconds, figure=rounded(slowest), unit="s"),
        Goal(what=f"{reader.what}, {times}", relation="<=", goal=_GOAL_GROWTH, figure=rounded(growth)),
    ]


def _measure_tokens(tokens: int, runs: int, result: Result) -> None:
    """Measure the counting of tokens in chat turns, with the tokenizer of the configured model."""
    settings = load_settings()
    counter = build_token_counter(settings.embedding_provider, settings.embedding_model)
    counter.count([_TURN])  # reads the tokenizer
    result.settings["tokenizer"] = counter.name
    turns = [_TURN] * (tokens // counter.count([_TURN])[0] + 1)
    seconds = rounded(_fastest(counter.count, turns, runs, clock=time.perf_counter))  # it uses all cores
    result.add("count_tokens", seconds, "s")
    estimated = counter.name == EstimatedTokens.name
    result.goals.append(
        Goal(
            what=f"counting {tokens:,} tokens", relation="<", goal=0.5, figure=None if estimated else seconds, unit="s",
            note="the tokenizer of the model is not on this machine" if estimated else "",
        )
    )  # fmt: skip


def _fastest(
    read: Callable[..., object], text: object, runs: int, clock: Callable[[], float] = time.thread_time
) -> float:
    """Return the seconds of the fastest reading: of the processor, which other processes lengthen less."""
    seconds: list[float] = []
    while len(seconds) < runs or (runs > 1 and sum(seconds) < _REPEAT_SECONDS):
        started = clock()
        read(text)
        seconds.append(clock() - started)
    return min(seconds)


if __name__ == "__main__":
    run(main)
