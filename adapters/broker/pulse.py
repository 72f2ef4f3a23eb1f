"""The pulse of the pipeline, kept in the broker: who is alive, how deep the queues are, how long messages take.

All of it is measurement: losing it loses no memory, and a broker that is away only means that nobody knows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

import msgspec
import redis

from reverie import contract
from reverie.pipeline.broker import call_broker

# A worker that has not been heard of for this long is not alive.
ALIVE_SECONDS: Final = 30
LAG_WINDOW_SECONDS: Final = 300
# 10,000 samples give a p99 to within a few of them and take 300 KB.
_LAG_SAMPLES: Final = 10_000


class WorkerPulse(msgspec.Struct, frozen=True, kw_only=True):
    """One process that takes tasks: when it was last heard of, and when it last finished one (seconds, UTC)."""

    name: str
    host: str
    pid: int
    queues: list[str]
    started_at: float
    seen_at: float
    progress_at: float = 0.0
    tasks_done: int = 0
    embedder: str = ""
    language_model: str = ""


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from accepted to searchable over the last five minutes."""

    samples: int
    p50_seconds: float | None
    p99_seconds: float | None


class Pulse:
    """Reads and writes the pulse of one broker. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix

    def record_lags(self, seconds: Sequence[float], *, now: float | None = None) -> None:
        """Note how long messages took from accepted to searchable."""
        if not seconds:
            return
        stamp = int(time.time() if now is None else now)
        newest = [f"{stamp}:{lag:.3f}" for lag in seconds[-_LAG_SAMPLES:]]
        with self._broker.pipeline(transaction=False) as pipeline:
            pipeline.lpush(self._prefix + "lag", *newest)
            pipeline.ltrim(self._prefix + "lag", 0, _LAG_SAMPLES - 1)
            call_broker(pipeline.execute)

    def lag(self, *, now: float | None = None) -> Lag:
        """The lags of the last five minutes as percentiles."""
        since = (time.time() if now is None else now) - LAG_WINDOW_SECONDS
        samples = call_broker(lambda: cast("list[bytes]", self._broker.lrange(self._prefix + "lag", 0, -1)))
        values = sorted(
            float(lag) for stamp, _, lag in (sample.partition(b":") for sample in samples) if int(stamp) >= since
        )
        return Lag(samples=len(values), p50_seconds=_percentile(values, 0.50), p99_seconds=_percentile(values, 0.99))

    def beat(self, worker: WorkerPulse) -> None:
        """Say that a worker is alive."""
        key = f"{self._prefix}worker:{worker.name}"
        call_broker(lambda: self._broker.set(key, msgspec.json.encode(worker), ex=2 * ALIVE_SECONDS))

    def progress(
        self, worker: str, *, now: float, tasks: int = 1, embedder: str = "", language_model: str = ""
    ) -> None:
        """Note that tasks of this worker have ended, and how its models are, where it used them."""
        key = f"{self._prefix}progress:{worker}"
        models = {"embedder": embedder, "language_model": language_model}
        with self._broker.pipeline(transaction=False) as pipeline:
            pipeline.hset(key, mapping={"at": now, **{name: said for name, said in models.items() if said}})
            pipeline.hincrby(key, "done", tasks)
            pipeline.expire(key, 3_600)
            call_broker(pipeline.execute)

    def workers(self, *, now: float | None = None) -> list[WorkerPulse]:
        """The workers that are alive, with their last progress."""
        oldest = (time.time() if now is None else now) - ALIVE_SECONDS
        keys = call_broker(lambda: list(self._broker.scan_iter(match=f"{self._prefix}worker:*", count=500)))
        found = [call_broker(partial(self._broker.get, key)) for key in sorted(keys)]
        alive = [msgspec.json.decode(value, type=WorkerPulse) for value in found if value]
        return [self._with_progress(worker) for worker in alive if worker.seen_at >= oldest]

    def queue_depths(self) -> dict[str, int]:
        """How many tasks wait in each queue."""
        return {queue: int(call_broker(partial(self._broker.llen, self._prefix + queue))) for queue in contract.QUEUES}

    def _with_progress(self, worker: WorkerPulse) -> WorkerPulse:
        key = f"{self._prefix}progress:{worker.name}"
        fields = call_broker(lambda: cast("dict[bytes, bytes]", self._broker.hgetall(key)))
        at = float(fields.get(b"at", 0))
        # What a process of the same name had before this one, with other settings perhaps, says nothing of it.
        current = fields if at >= worker.started_at else {}
        return msgspec.structs.replace(
            worker,
            progress_at=at,
            tasks_done=int(fields.get(b"done", 0)),
            embedder=current.get(b"embedder", b"").decode() or worker.embedder,
            language_model=current.get(b"language_model", b"").decode() or worker.language_model,
        )


def _percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of sorted values."""
    if not values:
        return None
    return values[max(0, math.ceil(share * len(values)) - 1)]
