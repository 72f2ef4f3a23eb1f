"""A broker that answers and refuses, as one with a full disk or a full memory does."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from adapters.broker.monitor import Monitor
from reverie import Reverie
from support.broker import running_valkey
from support.forks import RUN_MODULE, Program
from support.stages import heartbeat

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120


@contextmanager
def worker(data: Path, url: str) -> Iterator[Program]:
    settings = {
        "REVERIE_DATA": str(data),
        "REVERIE_BROKER": url,
        "REVERIE_EMBEDDING_PROVIDER": "none",
    }
    log = data.with_name("worker.log")
    process = Program(RUN_MODULE, ["cli", "worker"], {**os.environ, **settings}, log, folder=ROOT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def refused(broker: redis.Redis) -> int:
    """How many commands the broker has refused for want of memory."""
    return int(broker.info("errorstats").get("errorstat_OOM", {}).get("count", 0))


def test_a_worker_outlives_a_broker_that_refuses_to_write(tmp_path: Path) -> None:
    """Given a broker whose memory is full, when it has room again, then the same worker goes on."""
    with (
        running_valkey() as url,
        redis.Redis.from_url(url) as broker,
        worker(tmp_path / "d", url) as process,
        Reverie("ana", broker=url, url="http://127.0.0.1:1") as memory,
    ):
        memory.ingest("s", {"role": "user", "content": "before"}, wait="stored", timeout_seconds=PATIENCE_SECONDS)
        process.send_signal(signal.SIGSTOP)
        memory.ingest("s", {"role": "user", "content": "meanwhile"})
        broker.config_set("maxmemory", "1")
        process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not refused(broker):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        broker.config_set("maxmemory", "0")
        memory.ingest("s", {"role": "user", "content": "after"}, wait="stored", timeout_seconds=PATIENCE_SECONDS)
        assert process.poll() is None


def test_a_worker_is_not_judged_by_the_embedder_of_the_one_before_it(valkey_url: str, broker_prefix: str) -> None:
    """Given a worker that was started again with another model, then the status does not tell of the old one."""
    with redis.Redis.from_url(valkey_url) as broker:
        monitor = Monitor(broker, prefix=broker_prefix)
        monitor.record_progress("embed@here", now=100.0, embedder="missing: down")
        monitor.heartbeat(heartbeat("embed@here", ["embed"], at=200.0, host=socket.gethostname()))
        assert [found.embedder for found in monitor.workers()] == [""]
        monitor.record_progress("embed@here", now=202.0, embedder="there: up")
        assert [found.embedder for found in monitor.workers()] == ["there: up"]
