"""A broker whose disk was full starts again, with everything that it acknowledged.

A limit on the size of files takes the place of the full disk: a write falls short in the same way.
"""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from adapters.broker.erasing import BrokerErasure
from adapters.broker.inbox import WorkerInbox
from benchmarks.harness.folders import short_folder
from support.agents import until
from worker.supervision.append_only import close_gaps
from worker.supervision.broker_address import embedded_broker_url, embedded_socket_path
from worker.supervision.broker_sync import gap_bytes
from worker.supervision.embedded_broker import broker_command, wait_until_ready

LARGE = b"x" * 4_000
Start = Callable[[], "subprocess.Popen[bytes]"]
Running = tuple["subprocess.Popen[bytes]", redis.Redis]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder with a name short enough for a socket."""
    path = short_folder("rv-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(data_dir: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start_broker() -> subprocess.Popen[bytes]:
        # Python ignores SIGXFSZ, and so does its child: a write beyond the limit is an error, as on a full disk.
        process = subprocess.Popen(broker_command(data_dir), stdout=subprocess.DEVNULL, restore_signals=False)
        started.append(process)
        wait_until_ready(embedded_broker_url(data_dir), 20)
        return process

    yield start_broker
    for process in started:
        process.kill()
        process.wait()


def append_only(data_dir: Path) -> Path:
    return data_dir / "broker" / "appendonlydir"


def fill_and_empty(process: subprocess.Popen[bytes], broker: redis.Redis, data_dir: Path, name: str) -> None:
    """Let writes fall short, then let them through again."""
    (file,) = append_only(data_dir).glob("*.incr.aof")
    limits = psutil.Process(process.pid).rlimit(resource.RLIMIT_FSIZE)
    psutil.Process(process.pid).rlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, limits[1]))
    broker.set(f"{name}-short", LARGE)
    until(lambda: broker.info("persistence")["aof_last_write_status"] == "err", "no write falls short")
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        broker.set("refused", "1")
    psutil.Process(process.pid).rlimit(resource.RLIMIT_FSIZE, limits)
    until(lambda: broker.info("persistence")["aof_last_write_status"] == "ok", "no write goes through again")
    broker.set(f"{name}-after", "1")


def rewritten(broker: redis.Redis) -> bool:
    about = broker.info("persistence")
    return not (about["aof_rewrite_in_progress"] or about["aof_rewrite_scheduled"])


@pytest.fixture
def running(start: Start, data_dir: Path) -> Iterator[Running]:
    """The process of a broker that has rewritten its file since it started, and a client of it."""
    process = start()
    with redis.Redis.from_url(embedded_broker_url(data_dir)) as client:
        client.set("before", "1")
        client.bgrewriteaof()
        until(lambda: rewritten(client), "the file is not rewritten")
        yield process, client


def test_a_broker_starts_after_its_disk_was_full(running: Running, start: Start, data_dir: Path) -> None:
    process, broker = running
    fill_and_empty(process, broker, data_dir, "once")
    process.kill()
    process.wait()
    (file,) = append_only(data_dir).glob("*.incr.aof")
    assert b"\0\0\0\0" in file.read_bytes(), "this version leaves no gap: is the repair still needed?"

    assert close_gaps(append_only(data_dir)) > 0
    assert close_gaps(append_only(data_dir)) == 0

    start()
    assert broker.mget("before", "once-short", "once-after") == [b"1", LARGE, b"1"]


def test_a_deleted_workspace_is_in_no_file_of_the_broker(running: Running, data_dir: Path) -> None:
    _, broker = running
    inbox = WorkerInbox(broker, prefix="p:")
    for name in ("gone", "gone2"):
        broker.set(f"p:answered:{name}:k", f"a word of {name}")
    broker.set("p:queued", "a word of gone")
    broker.delete("p:queued")
    BrokerErasure(broker, inbox, prefix="p:", embedded=True).clear_workspace("gone")
    assert broker.keys("p:*") == [b"p:answered:gone2:k"]
    found = b"".join(file.read_bytes() for file in append_only(data_dir).iterdir())
    assert b"a word of gone2" in found
    assert b"a word of gone" not in found.replace(b"gone2", b"")


def test_a_gap_is_seen_while_the_broker_runs_and_gone_after_a_rewrite(
    running: Running, start: Start, data_dir: Path
) -> None:
    process, broker = running
    folder, address = str(append_only(data_dir)), str(embedded_socket_path(data_dir))
    assert gap_bytes(folder, address) == 0
    fill_and_empty(process, broker, data_dir, "once")
    assert gap_bytes(folder, address) > 0

    broker.bgrewriteaof()
    until(lambda: rewritten(broker), "the file is not rewritten")
    assert gap_bytes(folder, address) == 0

    fill_and_empty(process, broker, data_dir, "twice")
    process.send_signal(signal.SIGKILL)
    process.wait()
    close_gaps(append_only(data_dir))
    start()
    found = broker.mget("before", "once-short", "once-after", "twice-short", "twice-after")
    assert found == [b"1", LARGE, b"1", LARGE, b"1"]
