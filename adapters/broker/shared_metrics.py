"""Counters and histograms of all processes, kept in one hash of the broker.

Workers come and go: a child is replaced after some thousands of tasks, and nothing scrapes it. So each process keeps
sums, and adds them to those in the broker: a worker after each task, a server before each scrape. The sums therefore
survive restarts of workers and servers, and are the same whichever server is asked. They begin anew only when the
broker loses its content, which Prometheus takes for the restart of a process. A killed process loses the counts that it
has not added yet: those of its current task or, in a server, those since the last scrape.

Prometheus' own mode for several processes was not used: its files are named by process id, which containers share, and
it needs them on one host.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Final, cast

import redis

from reverie import contract
from reverie.pipeline.broker import call_broker

# Above this, a double can no longer represent every whole number.
_LARGEST: Final = 2.0**53
_SEPARATOR: Final = "|"
_SUM: Final = "sum"
_ABOVE: Final = "+Inf"

# In seconds: from a message that streams through an idle pipeline to one that waits an hour for a worker.
_LATENCIES: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
_WAITS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# In seconds: from a task that finds its inbox empty to the time limit of a task.
_DURATIONS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)


@dataclass(frozen=True, slots=True, eq=False)
class SharedMetric:
    """A counter, or with `buckets` a histogram. `labels` are all values that each label can have: few, and known.

    A counter's name gets the suffix `_total` where it is shown.
    """

    name: str
    description: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


_PURPOSES: Final = ("extraction", "summary", "refinement", "schedule")

INGESTED: Final = SharedMetric(
    "reverie_ingested_items",
    "Messages and files that workers took from an inbox, by what became of them.",
    {"outcome": ("stored", "repeated", "unchanged", "forgotten", "dead")},
)
MESSAGE_LATENCY: Final = SharedMetric(
    "reverie_message_latency_seconds",
    "Time from the acceptance of a message or file until it had reached a state.",
    {"state": ("stored", "chunked", "embedded", "searchable")},
    _LATENCIES,
)
QUEUE_WAIT: Final = SharedMetric(
    "reverie_queue_wait_seconds",
    "Time that tasks waited in a queue for a worker.",
    {"queue": contract.QUEUES},
    _WAITS,
)
# The task label for writes of the server and of commands, which belong to no task.
OTHER_TASK: Final = "none"
TASKS: Final = SharedMetric(
    "reverie_tasks",
    "Tasks that ended, by outcome.",
    {
        "task": tuple(name.removeprefix("reverie.") for name in contract.TASK_QUEUES),
        "outcome": ("done", "failed", "crashed", "killed"),
    },
)
TASK_DURATION: Final = SharedMetric(
    "reverie_task_duration_seconds",
    "Time that tasks took, from their start in a worker to their end.",
    {"queue": contract.QUEUES},
    _DURATIONS,
)
WEBHOOKS: Final = SharedMetric(
    "reverie_webhooks",
    "Attempts to send a webhook, by outcome.",
    {"outcome": ("delivered", "retry", "failed", "gone", "unanswered", "not_allowed")},
)
EMBEDDING_CALLS: Final = SharedMetric(
    "reverie_embedding_calls",
    "Calls of the embedding model, to embed stored texts or a query.",
    {"purpose": ("store", "query"), "outcome": ("done", "failed")},
)
EMBEDDED_TEXTS: Final = SharedMetric(
    "reverie_embedded_texts", "Texts that were embedded.", {"purpose": ("store", "query")}
)
EMBEDDED_TOKENS: Final = SharedMetric(
    "reverie_embedded_tokens",
    "Estimated tokens of the texts that were embedded, at four bytes a token.",
    {"purpose": ("store", "query")},
)
MODEL_CALLS: Final = SharedMetric(
    "reverie_language_model_calls",
    "Calls that reached the language model.",
    {"purpose": _PURPOSES, "outcome": ("done", "failed")},
)
MODEL_TOKENS: Final = SharedMetric(
    "reverie_language_model_tokens",
    "Tokens of the language model, estimated where the endpoint does not report them.",
    {"purpose": _PURPOSES, "direction": ("input", "output")},
)
LONG_TRANSACTIONS: Final = SharedMetric(
    "reverie_long_transactions",
    "Transactions that held the write lock of a store for more than half a second, by the task that made them.",
    {"task": (*TASKS.labels["task"], OTHER_TASK)},
)
SHARED_METRICS: Final = (
    INGESTED, MESSAGE_LATENCY, QUEUE_WAIT, TASKS, TASK_DURATION, WEBHOOKS, EMBEDDING_CALLS, EMBEDDED_TEXTS,
    EMBEDDED_TOKENS, MODEL_CALLS, MODEL_TOKENS, LONG_TRANSACTIONS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a counter, or the sum and the counts of a histogram: one for each bucket, and one above them."""

    labels: tuple[str, ...]
    value: float
    bucket_counts: tuple[float, ...] = ()


class SharedMetrics:
    """Adds to the metrics that all processes share, and reads them. Thread-safe; adding makes no connection."""

    def __init__(self, broker: redis.Redis, *, prefix: str) -> None:
        self._broker = broker
        self._key = prefix + "metrics"
        self._pending: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def count(self, metric: SharedMetric, *labels: str, amount: float = 1) -> None:
        """Add to a counter. A label with an unknown value is not counted: the number of series stays bounded."""
        if amount > 0 and _are_known(metric, labels):
            with self._lock:
                self._pending[_field(metric, *labels)] += amount

    def observe(self, metric: SharedMetric, measured_seconds: Iterable[float], *labels: str) -> None:
        """Add measurements to a histogram; one below zero, by two clocks that differ, counts as zero."""
        if not _are_known(metric, labels):
            return
        values = [max(0.0, seconds) for seconds in measured_seconds]
        names = [*map(str, metric.buckets), _ABOVE]
        counts = Counter(names[bisect_left(metric.buckets, value)] for value in values)
        with self._lock:
            for name, count in counts.items():
                self._pending[_field(metric, *labels, name)] += count
            if values:
                self._pending[_field(metric, *labels, _SUM)] += sum(values)

    def flush(self) -> None:
        """Add the counts of this process to the sums in the broker. Raises `Unavailable`, and keeps the counts.

        If the broker has added them but its answer came too late, they are added twice.
        """
        with self._lock:
            pending, self._pending = self._pending, defaultdict(float)
        if not pending:
            return
        try:
            self._add(pending)
        except BaseException:  # whatever ended it, also Ctrl-C: what was not added waits for the next call
            with self._lock:
                for name, amount in pending.items():
                    self._pending[name] += amount
            raise

    def _add(self, pending: Mapping[str, float]) -> None:
        with self._broker.pipeline(transaction=False) as pipeline:
            for name, amount in pending.items():
                pipeline.hincrbyfloat(self._key, name, amount)
            answers = call_broker(lambda: pipeline.execute(raise_on_error=False))
        for (name, amount), answer in zip(pending.items(), answers, strict=True):
            if isinstance(answer, redis.ResponseError) and "not a float" in str(answer):
                # Another program has put something else there: the sum begins anew.
                call_broker(partial(self._broker.hset, self._key, name, str(amount)))
            elif isinstance(answer, redis.RedisError):
                call_broker(partial(_raise, answer))

    def read(self) -> dict[SharedMetric, list[Sample]]:
        """Return the sums of all processes. Raises `Unavailable`. Unknown fields are ignored."""
        found = call_broker(lambda: cast("dict[bytes, bytes]", self._broker.hgetall(self._key)))
        values = {name.decode("utf-8", "replace"): stored_number(value) for name, value in found.items()}
        return {metric: list(_samples(metric, values)) for metric in SHARED_METRICS}


def _samples(metric: SharedMetric, values: Mapping[str, float]) -> Iterator[Sample]:
    """Yield the samples of a metric that were counted at least once; a counter without labels always has one."""
    for labels in product(*metric.labels.values()):
        if metric.buckets:
            counts = tuple(values.get(_field(metric, *labels, str(bound)), 0.0) for bound in (*metric.buckets, _ABOVE))
            if any(counts):
                yield Sample(labels, values.get(_field(metric, *labels, _SUM), 0.0), counts)
        elif (name := _field(metric, *labels)) in values or not labels:
            yield Sample(labels, values.get(name, 0.0))


def _are_known(metric: SharedMetric, labels: tuple[str, ...]) -> bool:
    return all(value in known for value, known in zip(labels, metric.labels.values(), strict=True))


def _field(metric: SharedMetric, *parts: str) -> str:
    return _SEPARATOR.join((metric.name, *parts))


def stored_number(value: bytes, largest: float = _LARGEST) -> float:
    """Return a stored number; 0 for a negative, larger or invalid one, since any program can write to the broker."""
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number if 0 <= number <= largest else 0.0


def _raise(error: Exception) -> None:
    raise error
