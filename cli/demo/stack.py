"""The stack for the demonstration: one that already runs on the data folder, or its own.

Invariant: on leaving `running_stack`, by whatever way, processes that it started are stopped, and others keep running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from reverie import Reverie, contract
from reverie.errors import Unavailable
from worker.settings import PREFIX
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.data_lock import supervisor_pid
from worker.supervision.processes import private_folder, spawn
from worker.supervision.run_file import read_run_file

DEFAULT_PORT = 7437
START_TIMEOUT_SECONDS = 120.0
_STOP_TIMEOUT_SECONDS = 40.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses of a running stack. `own`: this program started it and will stop it."""

    url: str
    broker: str
    prefix: str
    token: str | None
    own: bool

    def client(self, agent: str, workspace: str) -> Reverie:
        """Return a client as an agent would create it."""
        return Reverie(
            agent=agent,
            workspace=workspace,
            url=self.url,
            broker=self.broker,
            prefix=self.prefix,
            token=self.token,
            timeout_seconds=60,
        )


@contextlib.contextmanager
def running_stack(data: Path, workspace: str) -> Iterator[Stack]:
    """Yield the stack on a data folder. If none is running, start one and stop it at the end."""
    if supervisor_pid(data) is not None:
        yield _found(data)
        return
    port = _free_port()
    process = _start(data, workspace, port)
    try:
        _await_answer(process, port, _log_path(data))
        yield Stack(
            url=f"http://127.0.0.1:{port}",
            broker=embedded_broker_url(data),
            prefix=contract.DEFAULT_PREFIX,
            token=None,
            own=True,
        )
    finally:
        _stop(process)


def _start(data: Path, workspace: str, port: int) -> subprocess.Popen[bytes]:
    """Start `reverie up` in a session of its own, so that Ctrl-C only reaches this program, which then stops it."""
    private_folder(data / "logs")
    command = [sys.executable, "-P", "-m", "cli", "--data", os.fspath(data), "--workspace", workspace]
    # If this program is killed, the kernel sends the supervisor SIGTERM, so nothing is left running.
    return spawn([*command, "up", "--port", str(port)], {}, _log_path(data), signal.SIGTERM)


def _await_answer(process: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
    """Wait until the server answers. Raises Unavailable: if the stack ends, or does not answer in time."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while not _listens(port):
        if process.poll() is not None:
            lines = log_path.read_text(errors="replace").strip().splitlines()
            raise Unavailable(f"the stack ended at once: {lines[-1] if lines else f'see {log_path}'}")
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the stack does not answer after {START_TIMEOUT_SECONDS:g} s: see the logs in {log_path.parent}"
            )
        time.sleep(_POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the supervisor, which stops all its processes. A second Ctrl-C makes it kill them."""
    process.terminate()
    deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
    while process.poll() is None:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel ends its children with it


def _found(data: Path) -> Stack:
    """Return the addresses of the stack that runs on this folder, from the environment of its server.

    Raises Unavailable: if its server is not running, or its environment cannot be read.
    """
    up = read_run_file(data)
    pid = next((entry.pid for entry in up.processes if entry.name == "server"), None) if up else None
    if pid is None:
        raise Unavailable(
            f"a stack runs on {data}, but its server is not running: try again, or see the logs in {data / 'logs'}"
        )
    try:
        settings = psutil.Process(pid).environ()
    except psutil.Error as error:
        raise Unavailable(
            f"a stack runs on {data}, but the environment of its server cannot be read: {error}"
        ) from error
    host = settings.get(PREFIX + "HOST", "127.0.0.1")
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return Stack(
        url=f"http://{host}:{settings.get(PREFIX + 'PORT', DEFAULT_PORT)}",
        broker=settings.get(PREFIX + "BROKER") or embedded_broker_url(data),
        prefix=settings.get(PREFIX + "BROKER_PREFIX") or contract.DEFAULT_PREFIX,
        token=settings.get(PREFIX + "TOKEN"),
        own=False,
    )


def _free_port() -> int:
    """Return the default port, or another free one if it is in use."""
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do. Without it, a port with connections in TIME_WAIT counts as in use.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise Unavailable("there is no free port on 127.0.0.1")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _log_path(data: Path) -> Path:
    return data / "logs" / "demo.log"
