"""Measure the time from accepted to searchable while the machine works at half of its capacity.

Open loop: messages are sent one by one at random (Poisson) times drawn in advance, whether or not earlier ones are
done. The lag is read from the database; the delay of the sender itself is reported next to it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, percentile, rounded
from benchmarks.harness.stack import Stack
from benchmarks.harness.texts import Texts, load_texts, payload_of
from reverie.clock import now_micros
from reverie.contract import MessagePayload

_FULL_WORKSPACE: Final = "full"
_BATCH_MESSAGES: Final = 100
# Enough for every stage to always have work, and little enough to be finished in seconds afterwards; --quick: a tenth.
_BACKLOG_MESSAGES: Final = 2_000
_DRAIN_SECONDS: Final = 120.0


def main() -> None:
    """Measure and write the result."""
    options = _options()
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=2, full=60)
    calibration = value_or_default(options.calibration_seconds, quick=options.quick, tiny=1, full=10)
    result = Result.of("lag", options)
    tell = Progress()
    texts = load_texts(options.data, 2_000 if options.quick else 20_000, seed=options.seed)
    backlog = _BACKLOG_MESSAGES // (10 if options.quick else 1)
    with Stack() as stack:
        full = 2 * options.rate if options.rate else _full_rate(stack, texts, calibration, tell, backlog=backlog)
        rate = min(full / 2, 50.0) if options.quick and not options.rate else full / 2
        tell.step(f"sending {rate:,.0f} messages/s for {seconds:g} s")
        plan = _arrivals(rate, seconds, seed=options.seed)
        sent, late = _send(stack, texts, plan, tell)
        with stack.watch() as watch:
            watch.wait_searchable(len(sent), _DRAIN_SECONDS)
            found = watch.searchable()
        result.settings["embedder"] = stack.embedder
    result.settings.update(seconds=seconds, calibration_seconds=calibration, texts=texts.source)
    lags = [(row.searchable_at - row.accepted_at) / 1_000_000 for row in found]
    from_due = [(row.searchable_at - sent[row.id]) / 1_000_000 for row in found]
    _conclude(result, full, rate, lags, from_due, late)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("lag", __doc__)
    options.add_argument(
        "--rate", type=float, help="messages per second; by default half of the full rate, which is measured first"
    )
    options.add_argument("--seconds", type=float, help="seconds in which messages are sent (60; 2 with --quick)")
    options.add_argument("--calibration-seconds", type=float, help="seconds in which the full rate is measured (10)")
    return options.parse_args()


def _full_rate(stack: Stack, texts: Texts, seconds: float, tell: Progress, *, backlog: int) -> float:
    """Return the messages made searchable per second while there is always enough work."""
    producer = stack.producer(_FULL_WORKSPACE)
    sent = 0
    with stack.watch(_FULL_WORKSPACE) as watch:
        started = time.time()
        while time.time() - started < seconds:
            done = watch.messages() - watch.waiting()
            tell(f"measuring the full rate: {done:,} messages searchable")
            if sent - done >= backlog:
                time.sleep(0.01)
                continue
            batch = [payload_of(texts.turns[(sent + i) % len(texts.turns)]) for i in range(_BATCH_MESSAGES)]
            producer.enqueue(batch)
            sent += len(batch)
        ended = time.time()
        watch.wait_searchable(sent, _DRAIN_SECONDS)
        times = [row.searchable_at / 1_000_000 for row in watch.searchable()]
    in_time = sum(1 for moment in times if moment <= ended)
    # Nothing is done before the first batch has passed, and a short run may end before that.
    return in_time / (ended - started) if in_time else len(times) / (max(times) - started)


def _arrivals(rate: float, seconds: float, *, seed: int) -> list[float]:
    """Return when messages are due, in seconds from the start, with the gaps of a Poisson process."""
    chance = random.Random(seed)
    plan: list[float] = []
    moment = chance.expovariate(rate)
    while moment < seconds:
        plan.append(moment)
        moment += chance.expovariate(rate)
    return plan


def _send(stack: Stack, texts: Texts, plan: Sequence[float], tell: Progress) -> tuple[dict[str, int], list[float]]:
    """Send each message when it is due. Return the due time of each id (microseconds) and the delay of each sending."""
    producer = stack.producer()
    sent: dict[str, int] = {}
    late: list[float] = []
    first = _turn(texts, 0)
    sent[first.id] = now_micros()
    producer.enqueue([first], wait="searchable")  # creates the workspace and opens the connection
    started = time.time()
    for number, due in enumerate(plan, 1):
        wait = started + due - time.time()
        if wait > 0:
            time.sleep(wait)
        payload = _turn(texts, number)
        late.append(time.time() - started - due)
        producer.enqueue([payload])
        sent[payload.id] = int((started + due) * 1_000_000)
        tell(f"{number:,} of {len(plan):,} messages sent")
    return sent, late


def _turn(texts: Texts, number: int) -> MessagePayload:
    return payload_of(texts.turns[number % len(texts.turns)])


def _conclude(
    result: Result, full: float, rate: float, lags: Sequence[float], from_due: Sequence[float], late: Sequence[float]
) -> None:
    result.add("messages", len(lags))
    result.add("full_rate", rounded(full), "messages/s")
    result.add("rate", rounded(rate), "messages/s")
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        result.add(f"lag_{name}", rounded(percentile(lags, share)), "s")
    result.add("lag_p99_from_due", rounded(percentile(from_due, 0.99)), "s")
    result.add("sender_late_p99", rounded(percentile(late, 0.99)), "s")
    for name, goal in (("p50", 0.25), ("p99", 1.0)):
        figure = result.figures[f"lag_{name}"]
        result.goals.append(
            Goal(what=f"accepted to searchable, {name}", relation="<=", goal=goal, figure=figure, unit="s")
        )


if __name__ == "__main__":
    run(main)
