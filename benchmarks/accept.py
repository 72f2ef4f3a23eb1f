"""Measure how many messages per second are accepted, as `queued` and `stored`, one by one and in batches of 100.

Each figure is measured through the client, including validation, on a stack of its own that stores and embeds the
messages meanwhile. The rates over HTTP are for information.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, rounded, shown
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import Turn, load_texts
from reverie import Reverie
from reverie.contract import WaitFor

BATCH_MESSAGES: Final = 100
_WAIT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: the number of messages, messages per call, and how long each call waits."""

    name: str
    messages: int
    size: int
    wait: WaitFor = "queued"
    threads: int = 1
    by_http: bool = False


def main() -> None:
    """Measure and write the result."""
    options = _options()
    quick = options.quick
    single = int(value_or_default(options.single, quick=quick, tiny=100, full=10_000))
    batched = int(value_or_default(options.batched, quick=quick, tiny=500, full=50_000))
    stored = int(value_or_default(options.stored, quick=quick, tiny=400, full=20_000))
    texts = load_texts(options.data, 5_000 if not quick else 200, seed=options.seed)
    result = Result.of("accept", options)
    result.settings.update(single=single, batched=batched, stored=stored, texts=texts.source)
    tell = Progress()

    groups = [
        [Figure("queued_single", single, 1)],
        [Figure("queued_batch", batched, BATCH_MESSAGES)],
        [Figure("stored_batch", stored, BATCH_MESSAGES, wait="stored", threads=options.threads)],
        [
            Figure("http_queued_single", single // 5, 1, by_http=True),
            Figure("http_queued_batch", batched // 5, BATCH_MESSAGES, by_http=True),
        ],
    ]
    # One stack per group, so that no figure is affected by the backlog of another.
    if quick:
        groups = [[figure for group in groups for figure in group]]
    for group in groups:
        with Stack() as stack:
            for figure in group:
                rate = _measure(stack, figure, texts.turns, result)
                tell.step(f"{figure.name}: {shown(rate)} messages/s")
    for name, goal in (("queued_single", 2_000), ("queued_batch", 20_000), ("stored_batch", 5_000)):
        result.goals.append(
            Goal(what=name.replace("_", ", "), relation=">=", goal=goal, figure=result.figures[name], unit="messages/s")
        )
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("accept", __doc__)
    options.add_argument("--single", type=int, help="messages sent one by one (10,000)")
    options.add_argument("--batched", type=int, help="messages sent in batches of 100 (50,000)")
    options.add_argument("--stored", type=int, help="messages sent with wait=stored (20,000)")
    options.add_argument("--threads", type=int, default=4, help="threads; each waits for its own batch")
    return options.parse_args()


def _measure(stack: Stack, figure: Figure, turns: Sequence[Turn], result: Result) -> float | None:
    rate = None
    if figure.by_http and not stack.wait_server():
        result.notes.append(f"{figure.name} was not measured: the server does not answer")
    else:
        rate = rounded(_send(stack, figure, turns))
    result.add(figure.name, rate, "messages/s")
    return rate


def _send(stack: Stack, figure: Figure, turns: Sequence[Turn]) -> float:
    """Send the messages. Return how many were acknowledged per second."""
    calls_of = [_calls(turns, figure.messages // figure.threads, figure.size, first=n) for n in range(figure.threads)]
    failures: list[BaseException] = []
    way: dict[str, str] = {"url": stack.url} if figure.by_http else {"broker": stack.broker_url}
    with Reverie(agent="bench", workspace=WORKSPACE, timeout_seconds=60, **way) as client:
        client.ingest("first", [{"role": "user", "content": "opens the connection"}], wait="stored")

        def work(calls: Sequence[list[Any]], session: str) -> None:
            try:
                for messages in calls:
                    client.ingest(session, messages, wait=figure.wait, timeout_seconds=_WAIT_SECONDS)
            except BaseException as error:  # noqa: BLE001 - the boundary of the thread: the main thread raises it
                failures.append(error)

        workers = [
            threading.Thread(target=work, args=(calls, f"chat-{number}"), daemon=True)
            for number, calls in enumerate(calls_of)
        ]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return sum(len(messages) for calls in calls_of for messages in calls) / seconds


def _calls(turns: Sequence[Turn], count: int, size: int, *, first: int) -> list[list[dict[str, Any]]]:
    messages = [_message(turns[(first + 7 * number) % len(turns)]) for number in range(count)]
    return [messages[start : start + size] for start in range(0, len(messages), size)]


def _message(turn: Turn) -> dict[str, Any]:
    return {"role": "user", "name": turn.name, "content": turn.text}


if __name__ == "__main__":
    run(main)
