"""Measure how late schedules start when many are due in the same second, while messages are ingested.

All schedules fire each minute at its full second, the worst case. Each posts its goal, with what is recalled for it, to
a receiver that records the time. The lags from due to started and from due to received are measured.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.harness.arrivals import arrivals, noting_arrivals
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import Texts, load_texts, payload_of
from memory.scheduling.rules import ScheduleRules
from memory.scheduling.schedules import create_schedule
from reverie import contract
from reverie.clock import from_micros, now_micros
from reverie.errors import Unavailable
from reverie.pipeline.producer import TaskSender
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.checks import check_schedule
from reverie.scheduling.schedule_types import ScheduleDraft, WebhookExecutor

_AGENT: Final = "bench"
_USER_SCHEDULES: Final = 50
_KNOWN_MESSAGES: Final = 2_000
_BATCH_MESSAGES: Final = 10
_DRAIN_SECONDS: Final = 120.0
# Time before the full minute in which the schedules are created.
_PREPARE_SECONDS: Final = 20.0
_SOON_SECONDS: Final = 5


def main() -> None:
    """Measure and write the result."""
    options = _options()
    count = int(value_or_default(options.schedules, quick=options.quick, tiny=20, full=1_000))
    minutes = int(value_or_default(options.minutes, quick=options.quick, tiny=1, full=3))
    rate = value_or_default(options.rate, quick=options.quick, tiny=10, full=300)
    result = Result(benchmark="schedules", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings.update(schedules=count, minutes=minutes, rate=rate)
    tell = Progress()
    texts = load_texts(options.data, 20_000, seed=options.seed)
    with Stack(env={"REVERIE_WEBHOOK_ALLOW_PRIVATE": "127.0.0.1"}) as stack:
        known = min(_KNOWN_MESSAGES, 10 * count)
        tell.step(f"storing {known:,} messages to recall from")
        _remember(stack, texts, known)
        log = stack.data / "arrivals.log"
        with noting_arrivals(log) as url:
            tell.step(f"creating {count:,} schedules")
            _make(stack, texts, count, url, quick=options.quick)
            ingest = _Ingest(stack, texts, rate)
            with ingest:
                runs = _await_runs(stack, count, minutes, tell)
            came = {arrival.run: arrival.at for arrival in reversed(arrivals(log))}
        result.settings["embedder"] = stack.embedder
    _conclude(result, runs, came, count * minutes, ingest.sent)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("schedules", __doc__)
    options.add_argument("--schedules", type=int, help="schedules due in the same second (1,000; 20 with --quick)")
    options.add_argument("--minutes", type=int, help="minutes (3; 1 with --quick)")
    options.add_argument("--rate", type=float, help="messages per second meanwhile (300; 10 with --quick)")
    return options.parse_args()


def _remember(stack: Stack, texts: Texts, count: int) -> None:
    producer = stack.producer()
    for start in range(0, count, 100):
        producer.enqueue([payload_of(turn) for turn in texts.turns[start : start + 100]])
    with stack.watch() as watch:
        watch.wait_searchable(count, _DRAIN_SECONDS)


def _make(stack: Stack, texts: Texts, count: int, url: str, *, quick: bool) -> None:
    """Create the schedules, all for the next full minute that leaves enough time; with `quick`, for a few seconds from
    now.
    """
    left = 60 - time.time() % 60
    if left < _PREPARE_SECONDS and not quick:
        time.sleep(left)
    soon = parse_cadence(at=from_micros(now_micros() + _SOON_SECONDS * 1_000_000))
    cadence = soon if quick else parse_cadence(cron="* * * * *", tz="Europe/Lisbon")
    stores = stack.stores()
    try:
        store = stores.workspace(WORKSPACE)
        for number in range(count):
            goal = f"Look for news of this: {texts.turns[number % len(texts.turns)].text[:200]}"
            draft = ScheduleDraft(
                goal=goal,
                user=f"user-{number // _USER_SCHEDULES}",
                cadence=cadence,
                executor=WebhookExecutor(url=url),
            )
            create_schedule(
                store,
                check_schedule(draft),
                agent=_AGENT,
                rules=ScheduleRules(max_per_user=_USER_SCHEDULES),
                check_url=lambda _: None,
                now=now_micros(),
            )
    finally:
        stores.close()
    TaskSender(stack.broker_url, prefix=contract.DEFAULT_PREFIX).send(contract.EMBED_GOALS, workspace=WORKSPACE)
    with stack.watch() as watch:
        sql = "SELECT count(*) FROM schedules WHERE goal_vector IS NULL"
        deadline = time.monotonic() + _DRAIN_SECONDS
        while watch.number(sql) and time.monotonic() < deadline:
            time.sleep(0.1)


class _Ingest:
    """Sends messages at a constant rate from a thread of its own."""

    def __init__(self, stack: Stack, texts: Texts, rate: float) -> None:
        self.sent = 0
        self._producer = stack.producer("talk")
        self._texts = texts
        self._rate = rate
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()

    def _send(self) -> None:
        started = time.monotonic()
        turns = self._texts.turns
        while not self._halt.wait(max(0.0, started + self.sent / self._rate - time.monotonic())):
            batch = [payload_of(turns[(self.sent + number) % len(turns)]) for number in range(_BATCH_MESSAGES)]
            try:
                self._producer.enqueue(batch)
            except Unavailable:
                continue
            self.sent += _BATCH_MESSAGES


def _await_runs(stack: Stack, count: int, minutes: int, tell: Progress) -> list[tuple[str, int, int | None, str]]:
    """Wait until every schedule has had its runs. Return id, due time, start time and status of each run."""
    sql = "SELECT id, due_at, started_at, status FROM schedule_runs ORDER BY due_at, started_at"
    deadline = time.monotonic() + 60 * (minutes + 1) + _DRAIN_SECONDS
    ended = 0
    with stack.watch() as watch:
        while time.monotonic() < deadline:
            ended = watch.number("SELECT count(*) FROM schedule_runs WHERE finished_at IS NOT NULL")
            if ended >= count * minutes:
                break
            tell(f"{ended:,} of {count * minutes:,} runs have ended")
            time.sleep(0.2)
        tell.step(f"{ended:,} runs have ended")
        return [tuple(row) for row in watch.rows(sql)]


def _conclude(
    result: Result,
    runs: Sequence[tuple[str, int, int | None, str]],
    came: dict[str, int],
    expected: int,
    ingested: int,
) -> None:
    started = [(at - due) / 1_000_000 for _, due, at, _ in runs if at is not None][:expected]
    received = [(came[run_id] - due) / 1_000_000 for run_id, due, _, _ in runs if run_id in came][:expected]
    result.add("runs", len(started))
    result.add("runs_that_succeeded", sum(status == "success" for *_, status in runs[:expected]))
    result.add("first_due", from_micros(runs[0][1]).isoformat() if runs else "never")
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        result.add(f"started_{name}", rounded(percentile(started, share)), "s")
        result.add(f"received_{name}", rounded(percentile(received, share)), "s")
    result.add("messages_meanwhile", ingested)
    result.goals.append(
        Goal(
            what="from due to started, p99, all due in the same second",
            relation="<",
            goal=10.0,
            figure=result.figures["started_p99"] if len(started) == expected else None,
            unit="s",
        )
    )


if __name__ == "__main__":
    run(main)
