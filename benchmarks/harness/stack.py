"""The real stack on a folder of its own, as `reverie up` starts it: what the benchmarks measure.

Invariant: a stack does not outlive the benchmark that started it, whether that ends, fails, or is killed (then the
kernel signals the supervisor, which stops the rest).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import psutil

from adapters.broker.inbox import WorkerInbox
from adapters.broker.monitor import Monitor
from benchmarks.harness.folders import short_folder
from benchmarks.harness.options import ROOT
from benchmarks.harness.watch import Watch, watch_workspace
from reverie import contract
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload
from reverie.errors import Unavailable
from reverie.pipeline.broker import connect
from reverie.pipeline.producer import Producer
from reverie.pipeline.status import WorkerStatus
from storage.opened import open_stores
from storage.stores import Stores
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.processes import kill_group, spawn
from worker.supervision.run_file import RunFileEntry, read_run_file

WORKSPACE: Final = "bench"
_WARM_WORKSPACE: Final = "warm-up"
# Enough single messages for every process of a pool to get one.
_WARM_MESSAGES: Final = 12
_START_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 40.0
# The server begins to listen seconds after its port was chosen. So the port must be below those that the system itself
# gives to outgoing connections and to servers that name none: one of these could take it meanwhile.
_PORTS: Final = range(20_000, 32_000)
_chance: Final = random.SystemRandom()


class Stack:
    """Broker, workers, beat and server on a temporary folder, or a given one.

    Use it in a `with` statement, in the main thread.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        keep: bool = False,
        folder: Path | None = None,
        broker: str | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """`env` is added to the environment; `broker` is the address of a running broker to use, not one of its own.

        With `REVERIE_DATABASE` in either environment, the stack's stores are in that database.
        `prefix` is the command, with its arguments, that runs `reverie up`.
        """
        self.data = folder or short_folder("rvb-")
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.broker_url = broker or embedded_broker_url(self.data)
        self.embedder = ""
        self._env = {**({"REVERIE_BROKER": broker} if broker else {}), **(env or {})}
        self._database = {**os.environ, **self._env}.get("REVERIE_DATABASE") or None
        self._prefix = tuple(prefix)
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and return once it is warm."""
        with ExitStack() as on_error:
            on_error.callback(self.__exit__)
            self.start()
            on_error.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it and remove its folder."""
        self.stop()
        if not self._keep:
            shutil.rmtree(self.data, ignore_errors=True)

    def start(self) -> None:
        """Start all processes. Return when workers are alive and the embedder has embedded."""
        self.launch()
        self._await_workers()
        self._warm_up()

    def launch(self) -> None:
        """Start `reverie up` and return at once."""
        argv = [*self._prefix, sys.executable, "-m", "cli", "--data", str(self.data), "up", "--port", str(self.port)]
        self._process = spawn(argv, self._environment(), self.data / "up.out", signal.SIGTERM)

    def stop(self) -> None:
        """Interrupt it as Ctrl-C does, and kill what does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        family = _descendants(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        _kill(process, family)

    def kill(self) -> None:
        """Kill all processes at once, as when the power fails."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process, _descendants(process.pid))

    def has_ended(self) -> bool:
        """Return whether `reverie up` was started and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def producer(self, workspace: str = WORKSPACE) -> Producer:
        """Return a producer, which puts messages into the inbox as the client does."""
        return Producer(self.broker_url, workspace=workspace)

    def inbox(self) -> WorkerInbox:
        """Return the inbox, to query how much waits in it."""
        return WorkerInbox(connect(self.broker_url), prefix=contract.DEFAULT_PREFIX)

    def database(self, workspace: str = WORKSPACE) -> Path:
        """Return the database file of a workspace."""
        return self.data / "workspaces" / workspace / "memory.db"

    def watch(self, workspace: str = WORKSPACE) -> Watch:
        """Return read access to the database of a workspace."""
        return watch_workspace(self.data, self._database, workspace)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield each row in its database as text, with the name of its table; none where its stores are files."""
        if self._database is not None:
            from benchmarks.harness.postgres import rows_of  # its packages are needed with PostgreSQL only

            yield from rows_of(self._database, self.data)

    def stores(self) -> Stores:
        """Open its stores; the caller closes them."""
        return open_stores(self.data, self._database)

    @property
    def supervisor_pid(self) -> int:
        """Return the supervisor's process."""
        if self._process is None:
            raise RuntimeError("the stack is not running")
        return self._process.pid

    def processes(self) -> list[RunFileEntry]:
        """Return the supervised processes, as last written by the supervisor."""
        up = read_run_file(self.data)
        return list(up.processes) if up else []

    def command(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of `reverie` on its folder, with its environment; the output is text in a pipe."""
        argv = [sys.executable, "-m", "cli", "--data", str(self.data), *words]
        environment = {**os.environ, **self._environment()}
        return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def server_answers(self) -> bool:
        """Return whether an HTTP server exists and answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return int(answer.status) == 200
        except (urllib.error.URLError, OSError):
            return False

    def wait_server(self, timeout_seconds: float = 20.0) -> bool:
        """Return whether the HTTP server answers within the time."""
        deadline = time.monotonic() + timeout_seconds
        while not self.server_answers():
            if time.monotonic() > deadline or not (ROOT / "server" / "__main__.py").exists():
                return False
            time.sleep(0.2)
        return True

    def monitor(self) -> list[WorkerStatus]:
        """Return the workers that have reported."""
        with connect(self.broker_url) as broker:
            return Monitor(broker, prefix=contract.DEFAULT_PREFIX).workers()

    def _environment(self) -> dict[str, str]:
        # An empty variable counts as not set: settings of the caller's own Reverie must not apply here.
        foreign = dict.fromkeys(("REVERIE_BROKER", "REVERIE_BROKER_PREFIX", "REVERIE_WORKSPACE", "REVERIE_HOST"), "")
        return {**foreign, "REVERIE_CONFIG": os.devnull, "HF_HUB_OFFLINE": "1", **self._env}

    def output(self) -> str:
        """Return what `reverie up` has written to its terminal."""
        return (self.data / "up.out").read_text(encoding="utf-8", errors="replace")

    def check_alive(self, deadline: float) -> None:
        """Raise RuntimeError, with the output, if the stack has ended or the monotonic clock is past `deadline`."""
        process = self._process
        if process is None or process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the stack did not start; its output:\n{self.output()[-2_000:]}")

    def _await_workers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        required = {contract.QUEUE_INGEST, contract.QUEUE_EMBED}
        while True:
            self.check_alive(deadline)
            with contextlib.suppress(Unavailable):
                if required <= {queue for worker in self.monitor() for queue in worker.queues}:
                    return
            time.sleep(0.1)

    def _warm_up(self) -> None:
        producer = self.producer(_WARM_WORKSPACE)
        for number in range(_WARM_MESSAGES):
            producer.enqueue([_warm_message(number)], wait="searchable", timeout_seconds=_START_SECONDS)
        described = [worker.embedder for worker in self.monitor() if worker.embedder]
        self.embedder = described[0] if described else ""


def _warm_message(number: int) -> MessagePayload:
    return MessagePayload(
        id=new_id(),
        agent="bench",
        session="warm-up",
        role="user",
        content=f"message {number} finds out whether everybody is awake",
        created_at=now_micros(),
        trace="warm-up",
    )


def _free_port() -> int:
    while True:
        port = _chance.choice(_PORTS)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return port


def _kill(process: subprocess.Popen[bytes], family: Sequence[psutil.Process]) -> None:
    kill_group(process.pid)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    psutil.wait_procs(family, timeout=5)


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []
