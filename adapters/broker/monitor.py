"""Monitoring data in the broker: heartbeats of workers, queue depths, latencies of messages, and risks of data loss.

These are measurements only: losing them loses no memories.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

import msgspec
import redis

from adapters.broker.shared_metrics import stored_number
from reverie import contract
from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker
from reverie.pipeline.status import LagStatus, WorkerStatus

# A worker without a heartbeat for this long is not alive. The broker counts, so that clocks of hosts may differ.
ALIVE_SECONDS: Final = 30
LAG_WINDOW_SECONDS: Final = 300
# 10,000 samples give a p99 to within a few of them and take 300 KB.
_LAG_SAMPLES: Final = 10_000
_WARNINGS_SECONDS: Final = 60.0
# The upper limit of counts and of times in seconds since 1970 (the year 5138).
_LARGEST: Final = 1e11


class Monitor:
    """Reads and writes the monitoring data of one broker. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str, flushed: bool = False) -> None:
        """With `flushed`, another process than the broker flushes the broker's file to the disk."""
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

    def lag(self, *, now: float | None = None) -> LagStatus:
        """Return the percentiles of the lags of the last five minutes."""
        since = (time.time() if now is None else now) - LAG_WINDOW_SECONDS
        samples = call_broker(lambda: cast("list[bytes]", self._broker.lrange(self._prefix + "lag", 0, -1)))
        values = sorted(lag for stamp, lag in map(_lag_sample, samples) if stamp >= since)
        p50, p99 = _percentile(values, 0.50), _percentile(values, 0.99)
        return LagStatus(samples=len(values), p50_seconds=p50, p99_seconds=p99)

    def heartbeat(self, worker: WorkerStatus) -> str:
        """Record that a worker is alive; return the other process that reported under its name before, if one did."""
        key = f"{self._prefix}worker:{worker.name}"
        with self._broker.pipeline(transaction=False) as pipeline:
            pipeline.mget(key)
            pipeline.set(key, msgspec.json.encode(worker), ex=ALIVE_SECONDS)
            (before,), _ = call_broker(pipeline.execute)
        other = _heartbeat(before) if before else None
        same = other is None or (other.host, other.pid) == (worker.host, worker.pid)
        return "" if other is None or same else f"pid {other.pid} on {other.host}"

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

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that are alive, with their last progress."""
        pattern = f"{self._prefix}worker:*"
        keys = call_broker(lambda: list(self._broker.scan_iter(match=pattern, count=500, _type="STRING")))
        found = [call_broker(partial(self._broker.get, key)) for key in sorted(keys)]
        alive = [heartbeat for value in found if value and (heartbeat := _heartbeat(value))]
        return [self._with_progress(worker) for worker in alive]

    def queue_depths(self) -> dict[str, int]:
        """Return the number of tasks in each queue."""
        with self._broker.pipeline(transaction=False) as pipeline:
            for queue in contract.QUEUES:
                pipeline.llen(self._prefix + queue)
            return dict(zip(contract.QUEUES, map(int, call_broker(pipeline.execute)), strict=True))

    def queue_depth(self, queue: str) -> int:
        """Return the number of tasks in one queue."""
        return int(call_broker(partial(self._broker.llen, self._prefix + queue)))

    def warnings(self) -> list[str]:
        """Return the broker's settings that could lose messages. The broker is asked for them at most once a minute."""
        now = time.monotonic()
        if self._warnings is None or now - self._warnings[0] > _WARNINGS_SECONDS:
            self._warnings = (now, durability_warnings(self._broker, flushed=self._flushed))
        return self._warnings[1]

    def _with_progress(self, worker: WorkerStatus) -> WorkerStatus:
        key = f"{self._prefix}progress:{worker.name}"
        fields = call_broker(lambda: cast("dict[bytes, bytes]", self._broker.hgetall(key)))
        at = stored_number(fields.get(b"at", b"0"), _LARGEST)
        progress_at = datetime.fromtimestamp(at, UTC)
        # Ignore the state of an earlier process of the same name, which may have had other settings.
        current = fields if progress_at >= worker.started_at else {}
        return msgspec.structs.replace(
            worker,
            progress_at=progress_at if at else None,
            tasks_done=int(stored_number(fields.get(b"done", b"0"), _LARGEST)),
            embedder=current.get(b"embedder", b"").decode("utf-8", "replace") or worker.embedder,
            language_model=current.get(b"language_model", b"").decode("utf-8", "replace") or worker.language_model,
        )


# Any program may write to the broker: values of another form are ignored.


def _heartbeat(value: bytes | str) -> WorkerStatus | None:
    try:
        worker = msgspec.json.decode(value, type=WorkerStatus)
    except (ValueError, RecursionError):
        return None
    times = [worker.started_at, worker.seen_at, *(death.at for death in worker.deaths)]
    has_zones = all(time.tzinfo is not None for time in times)
    return worker if has_zones and 0 <= worker.stalled_seconds <= _LARGEST else None


def _lag_sample(sample: bytes) -> tuple[float, float]:
    stamp, _, lag = sample.partition(b":")
    return stored_number(stamp, _LARGEST), stored_number(lag, _LARGEST)


def _percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of sorted values."""
    if not values:
        return None
    return values[max(0, math.ceil(share * len(values)) - 1)]


def durability_warnings(broker: redis.Redis, *, flushed: bool) -> list[str]:
    """Return the broker settings that could lose accepted messages, each with the value to set.

    With `flushed`, another process, such as `broker-sync`, flushes the broker's file to the disk. Settings that the
    broker does not report cause no warning. Raises `Unavailable` if the broker does not answer.
    """
    found = {**_info(broker, "persistence"), **_info(broker, "memory"), **_info(broker, "replication")}
    fsync = _setting(broker, "appendfsync")
    warnings = []
    if str(found.get("aof_enabled", "1")) == "0":
        warnings.append("it keeps no file of its writes, so a restart loses what is queued: set `appendonly yes`")
    elif fsync == "everysec":
        warnings.append(
            "if it is killed while its disk is slow, it may lose writes that it has acknowledged: set"
            " `appendfsync always`"
        )
    elif fsync == "no" and not flushed:
        warnings.append(
            "a power cut can lose the last half minute of its writes: set `appendfsync always`, or run broker-sync and"
            " set REVERIE_BROKER_FLUSHED=true"
        )
    policy = str(found.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        warnings.append(f"it removes messages when its memory is full ({policy}): set `maxmemory-policy noeviction`")
    if found.get("role") == "slave":
        warnings.append("it is a replica and takes no writes: name the primary server in REVERIE_BROKER")
    if str(found.get("aof_last_write_status", "ok")) != "ok":
        warnings.append("it cannot write its file: is its disk full?")
    return warnings


def _info(broker: redis.Redis, section: str) -> Mapping[str, Any]:
    try:
        return cast("Mapping[str, Any]", call_broker(lambda: broker.info(section)))
    except Unavailable as error:
        if isinstance(error.__cause__, redis.ResponseError):  # the user may not run INFO
            return {}
        raise


def _setting(broker: redis.Redis, name: str) -> str:
    try:
        found = cast("Mapping[str, str]", call_broker(lambda: broker.config_get(name)))
    except Unavailable as error:
        if isinstance(error.__cause__, redis.ResponseError):  # the user may not run CONFIG, or a provider hides it
            return ""
        raise
    return found.get(name, "")
