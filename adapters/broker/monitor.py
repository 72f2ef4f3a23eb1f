"""Monitoring data in the broker: heartbeats of workers, queue depths, and how long messages take.

These are measurements only: losing them loses no memories.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, cast

import msgspec
import redis

from adapters.broker.durability import durability_warnings
from reverie import contract
from reverie.pipeline.broker import call_broker

# A worker without a heartbeat for this long is not alive.
ALIVE_SECONDS: Final = 30
LAG_WINDOW_SECONDS: Final = 300
# 10,000 samples give a p99 to within a few of them and take 300 KB.
_LAG_SAMPLES: Final = 10_000
_WARNINGS_SECONDS: Final = 60.0
# Of times in seconds since 1970 and of counts: the year 5138.
_LARGEST: Final = 1e11

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]


class WorkerHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process. `seen_at` is its last heartbeat, `progress_at` its last finished task (Unix seconds)."""

    name: str
    host: str
    pid: int
    queues: list[str]
    started_at: _Seconds
    seen_at: _Seconds
    progress_at: _Seconds = 0.0
    tasks_done: int = 0
    embedder: str = ""
    language_model: str = ""


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from accepted to searchable over the last five minutes."""

    samples: int
    p50_seconds: float | None
    p99_seconds: float | None


class Monitor:
    """Reads and writes the monitoring data of one broker. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str, flushed: bool = False) -> None:
        """With `flushed`, something else than the broker flushes its file to the disk."""
        self._broker = broker
        self._prefix = prefix
        self._flushed = flushed
        self._warnings: tuple[float, list[str]] | None = None

    def record_lags(self, seconds: Sequence[float], *, now: float | None = None) -> None:
        """Record how many seconds messages took from accepted to searchable."""
        if not seconds:
            return
        stamp = int(time.time() if now is None else now)
        newest = [f"{stamp}:{max(lag, 0.0):.3f}" for lag in seconds[-_LAG_SAMPLES:]]
        with self._broker.pipeline(transaction=False) as pipeline:
            pipeline.lpush(self._prefix + "lag", *newest)
            pipeline.ltrim(self._prefix + "lag", 0, _LAG_SAMPLES - 1)
            call_broker(pipeline.execute)

    def lag(self, *, now: float | None = None) -> Lag:
        """Return the percentiles of the lags of the last five minutes."""
        since = (time.time() if now is None else now) - LAG_WINDOW_SECONDS
        samples = call_broker(lambda: cast("list[bytes]", self._broker.lrange(self._prefix + "lag", 0, -1)))
        values = sorted(lag for stamp, lag in map(_lag_sample, samples) if stamp >= since)
        return Lag(samples=len(values), p50_seconds=_percentile(values, 0.50), p99_seconds=_percentile(values, 0.99))

    def heartbeat(self, worker: WorkerHeartbeat) -> None:
        """Record that a worker is alive."""
        key = f"{self._prefix}worker:{worker.name}"
        call_broker(lambda: self._broker.set(key, msgspec.json.encode(worker), ex=2 * ALIVE_SECONDS))

    def record_progress(
        self, worker: str, *, now: float, tasks: int = 1, embedder: str = "", language_model: str = ""
    ) -> None:
        """Record finished tasks of a worker, and the state of the models that it has used."""
        key = f"{self._prefix}progress:{worker}"
        models = {"embedder": embedder, "language_model": language_model}
        with self._broker.pipeline(transaction=False) as pipeline:
            pipeline.hset(key, mapping={"at": now, **{name: state for name, state in models.items() if state}})
            pipeline.hincrby(key, "done", tasks)
            pipeline.expire(key, 3_600)
            call_broker(pipeline.execute)

    def workers(self, *, now: float | None = None) -> list[WorkerHeartbeat]:
        """Return the workers that are alive, with their last progress."""
        oldest = (time.time() if now is None else now) - ALIVE_SECONDS
        pattern = f"{self._prefix}worker:*"
        keys = call_broker(lambda: list(self._broker.scan_iter(match=pattern, count=500, _type="STRING")))
        found = [call_broker(partial(self._broker.get, key)) for key in sorted(keys)]
        alive = [heartbeat for value in found if value and (heartbeat := _heartbeat(value))]
        return [self._with_progress(worker) for worker in alive if worker.seen_at >= oldest]

    def queue_depths(self) -> dict[str, int]:
        """Return the number of tasks in each queue."""
        return {queue: int(call_broker(partial(self._broker.llen, self._prefix + queue))) for queue in contract.QUEUES}

    def warnings(self) -> list[str]:
        """Return what of the broker's configuration could lose messages. It is asked at most once a minute."""
        now = time.monotonic()
        if self._warnings is None or now - self._warnings[0] > _WARNINGS_SECONDS:
            self._warnings = (now, durability_warnings(self._broker, flushed=self._flushed))
        return self._warnings[1]

    def _with_progress(self, worker: WorkerHeartbeat) -> WorkerHeartbeat:
        key = f"{self._prefix}progress:{worker.name}"
        fields = call_broker(lambda: cast("dict[bytes, bytes]", self._broker.hgetall(key)))
        at = _number(fields.get(b"at", b"0"))
        # Ignore the state of an earlier process of the same name, which may have had other settings.
        current = fields if at >= worker.started_at else {}
        return msgspec.structs.replace(
            worker,
            progress_at=at,
            tasks_done=int(_number(fields.get(b"done", b"0"))),
            embedder=current.get(b"embedder", b"").decode("utf-8", "replace") or worker.embedder,
            language_model=current.get(b"language_model", b"").decode("utf-8", "replace") or worker.language_model,
        )


# Any program may write to the broker: what has another form counts as not there.


def _heartbeat(value: bytes | str) -> WorkerHeartbeat | None:
    try:
        return msgspec.json.decode(value, type=WorkerHeartbeat)
    except (ValueError, RecursionError):
        return None


def _lag_sample(sample: bytes) -> tuple[float, float]:
    stamp, _, lag = sample.partition(b":")
    return _number(stamp), _number(lag)


def _number(value: bytes) -> float:
    """Return a number that is not negative and at most `_LARGEST`; 0 for anything else."""
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number if 0 <= number <= _LARGEST else 0.0


def _percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of sorted values."""
    if not values:
        return None
    return values[max(0, math.ceil(share * len(values)) - 1)]
