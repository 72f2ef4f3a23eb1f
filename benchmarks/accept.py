"""Messages a second that an agent can hand over: `queued` and `stored`, one by one and in batches of 100.

Each figure is measured through the client, validation and all, on a stack of its own that stores and embeds what comes
in meanwhile. Over HTTP it is measured for information, where the server is there.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.harness.figures import rounded
from benchmarks.harness.options import given, parser
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import Turn, load_texts
from reverie import Reverie
from reverie.contract import WaitFor

BATCH_MESSAGES: Final = 100
_WAIT_SECONDS: Final = 120.0

Connect = Callable[[Stack], Reverie]


def main() -> None:
    """Measure and write the result."""
    options = _options()
    quick = options.quick
    single = int(given(options.single, quick=quick, tiny=100, full=10_000))
    batched = int(given(options.batched, quick=quick, tiny=500, full=50_000))
    stored = int(given(options.stored, quick=quick, tiny=400, full=20_000))
    texts = load_texts(options.data, 5_000 if not quick else 200, seed=options.seed)
    result = Result(benchmark="accept", seed=options.seed, quick=quick, settings=settings_of(vars(options)))
    result.settings.update(single=single, batched=batched, stored=stored, texts=texts.source)
    tell = Progress()

    def measure(name: str, count: int, size: int, wait: WaitFor, threads: int, connect: Connect = _by_broker) -> None:
        with Stack() as stack:
            if connect is _by_http and not stack.wait_server():
                result.add(name, None, "messages/s")
                result.notes.append(f"{name} was not measured: no server answers")
                return
            rate = _hand_over(stack, connect, texts.turns, count, size=size, wait=wait, threads=threads)
        result.add(name, rounded(rate), "messages/s")
        tell.step(f"{name}: {rate:,.0f} messages/s")

    measure("queued_single", single, 1, "queued", 1)
    measure("queued_batch", batched, BATCH_MESSAGES, "queued", 1)
    measure("stored_batch", stored, BATCH_MESSAGES, "stored", options.threads)
    measure("http_queued_single", single // 5, 1, "queued", 1, _by_http)
    measure("http_queued_batch", batched // 5, BATCH_MESSAGES, "queued", 1, _by_http)
    for name, goal in (("queued_single", 2_000), ("queued_batch", 20_000), ("stored_batch", 5_000)):
        result.goals.append(
            Goal(what=name.replace("_", ", "), relation=">=", goal=goal, figure=result.figures[name], unit="messages/s")
        )
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("accept", __doc__)
    options.add_argument("--single", type=int, help="messages handed over one by one (10,000)")
    options.add_argument("--batched", type=int, help="messages handed over in batches of 100 (50,000)")
    options.add_argument("--stored", type=int, help="messages waited for until they are stored (20,000)")
    options.add_argument("--threads", type=int, default=4, help="threads of which each waits for its own batch")
    return options.parse_args()


def _by_broker(stack: Stack) -> Reverie:
    return Reverie(agent="bench", broker=stack.broker_url, workspace=WORKSPACE)


def _by_http(stack: Stack) -> Reverie:
    return Reverie(agent="bench", url=stack.url, workspace=WORKSPACE, timeout_seconds=60)


def _hand_over(
    stack: Stack, connect: Connect, turns: Sequence[Turn], count: int, *, size: int, wait: WaitFor, threads: int
) -> float:
    """Hand over `count` messages and return how many a second were acknowledged."""
    shares = [_calls(turns, count // threads, size, first=number) for number in range(threads)]
    failures: list[BaseException] = []
    with connect(stack) as client:
        client.ingest("first", [{"role": "user", "content": "opens the connection"}], wait="stored")

        def work(calls: Sequence[list[dict[str, Any]]], session: str) -> None:
            try:
                for messages in calls:
                    client.ingest(session, messages, wait=wait, timeout_seconds=_WAIT_SECONDS)
            except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
                failures.append(error)

        workers = [
            threading.Thread(target=work, args=(calls, f"chat-{number}"), daemon=True)
            for number, calls in enumerate(shares)
        ]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return sum(len(messages) for calls in shares for messages in calls) / seconds


def _calls(turns: Sequence[Turn], count: int, size: int, *, first: int) -> list[list[dict[str, Any]]]:
    messages = [_message(turns[(first + 7 * number) % len(turns)]) for number in range(count)]
    return [messages[start : start + size] for start in range(0, len(messages), size)]


def _message(turn: Turn) -> dict[str, Any]:
    return {"role": "user", "name": turn.name, "content": turn.text}


if __name__ == "__main__":
    main()
