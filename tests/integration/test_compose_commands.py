"""Every service of `docker-compose.yml` by hand: its command as a process, its health check until it is healthy.

No container engine is needed. The environment is the one that a container would get; what differs is what has to:
the folders (a temporary one for /data and for the current one), the ports (free ones), and the broker's address.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from reverie import Rejected, Reverie
from support.compose import load_compose, seconds
from support.forks import RUN_MODULE, Program
from support.ports import free_port
from worker.supervision.broker_address import valkey_server_path

PASSWORD = "5ec3e7"
TOKEN = "a token of this test, as long as tokens must be"
# All services start at once, each with seconds of imports.
HEALTHY_WITHIN_SECONDS = 180.0
CHECKED_EVERY_SECONDS = 2.0
WORKERS = ("pipeline", "embed", "maintenance", "extraction", "schedules")
FORKED = WORKERS[1:]
# Only what a container has: nothing of the shell that runs the tests.
BARE = {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass
class Composed:
    """The services as processes, in the order in which they were started."""

    folder: Path
    broker_port: int
    server_port: int
    flower_port: int
    services: dict[str, Any]
    running: dict[str, subprocess.Popen[bytes] | Program] = field(default_factory=dict)
    # Processes that were healthy once: each check starts a process that imports for a second.
    healthy: dict[str, subprocess.Popen[bytes] | Program] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Run a service's command. What `reverie worker` imports when it is started so, one of the workers shows."""
        program, *words = self.services[name]["command"]
        if name in FORKED:
            assert program == "reverie"
            self.running[name] = Program(
                RUN_MODULE, ["cli", *words], self.environment(name), self.folder / f"{name}.log",
                folder=self.folder / "cwd",
            )  # fmt: skip
            return
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                self.here(self.services[name]["command"]),
                cwd=self.folder / "cwd",
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_healthy(self, name: str) -> bool:
        """Run a service's health check once; one that takes longer than it is given says no."""
        check = self.services[name]["healthcheck"]
        kind, *command = check["test"]
        if kind == "CMD-SHELL":
            command = ["/bin/sh", "-c", *command]
        try:
            answer = subprocess.run(
                self.here(command),
                cwd=self.folder / "cwd",
                env=self.environment(name),
                capture_output=True,
                timeout=seconds(check["timeout"]),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return answer.returncode == 0

    def here(self, command: list[str]) -> list[str]:
        """A command with this machine's folder in place of the volume of the broker."""
        return [word.replace("/broker/", f"{self.folder}/broker/") for word in command]

    def await_healthy(self, name: str) -> None:
        """Return when the health check says yes, or said it before and the process still runs."""
        process = self.running.get(name)
        if process is not None and self.healthy.get(name) is process and process.poll() is None:
            return
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while not self.is_healthy(name):
            assert time.monotonic() < deadline, f"{name} is not healthy:\n{self.log(name)}"
            # Checks without a pause would take the processors from the services that are starting.
            with suppress(subprocess.TimeoutExpired):
                self.running[name].wait(CHECKED_EVERY_SECONDS)
            assert self.running[name].poll() is None, f"{name} ended:\n{self.log(name)}"
        self.healthy[name] = self.running[name]

    def stop(self, name: str) -> int:
        """Stop a service as Compose does and return its exit code."""
        process = self.running.pop(name)
        process.terminate()
        return process.wait(seconds(self.services[name]["stop_grace_period"]))

    def environment(self, name: str) -> dict[str, str]:
        """What the container would have, with this machine's folders and ports."""
        declared = dict(self.services[name].get("environment", {}))
        here = {
            "REVERIE_DATA": str(self.folder / "data"),
            "REVERIE_BROKER": declared.get("REVERIE_BROKER", "").replace(
                "valkey:6379", f"127.0.0.1:{self.broker_port}"
            ),
            "REVERIE_PORT": str(self.server_port),
            "FLOWER_PORT": str(self.flower_port),
        }
        changed = {key: value for key, value in here.items() if key in declared}
        path = os.pathsep.join([str(self.folder / "bin"), str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        return {**BARE, **declared, **changed, "HOME": str(self.folder / "home"), "PATH": path}

    def log(self, name: str) -> str:
        """The end of what a service wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def end(self) -> None:
        """Kill what is left, whatever the tests came to."""
        for process in self.running.values():
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                for one in psutil.Process(process.pid).children(recursive=True):
                    one.kill()
            process.kill()
            process.wait()


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs; it may end, and its parent take note of that, at any moment."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stand_in(folder: Path, broker_port: int) -> None:
    """The two programs of the broker's image: the bundled server on our port, and a `valkey-cli` that can ping."""
    programs = {
        "valkey-server": f'#!/bin/sh\nexec {valkey_server_path()} --port {broker_port} --dir {folder}/broker "$@"\n',
        "valkey-cli": f"#!{sys.executable}\nimport os, socket, sys\n"
        f"with socket.create_connection(('127.0.0.1', {broker_port}), 2) as broker:\n"
        "    broker.sendall(b'AUTH ' + os.environ['REDISCLI_AUTH'].encode() + b'\\r\\n')\n"
        "    assert broker.recv(100) == b'+OK\\r\\n'\n"
        "    broker.sendall(sys.argv[1].encode() + b'\\r\\n')\n"
        "    print(broker.recv(100).decode())\n",
    }
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    """All services, started in the order of their dependencies, each awaited until it is healthy."""
    folder = Path(tempfile.mkdtemp(prefix="rv-", dir="/tmp"))
    for name in ("bin", "broker", "cwd", "data", "home"):
        (folder / name).mkdir()
    variables = {"REVERIE_TOKEN": TOKEN, "REVERIE_BROKER_PASSWORD": PASSWORD, "REVERIE_EMBEDDING_PROVIDER": "hash"}
    stack = Composed(folder, free_port(), free_port(), free_port(), load_compose(variables)["services"])
    stand_in(folder, stack.broker_port)
    try:
        stack.start("valkey")
        stack.await_healthy("valkey")
        for name in stack.services.keys() - {"valkey"}:
            stack.start(name)
        yield stack
    finally:
        stack.end()
        shutil.rmtree(folder)


SERVICES = sorted(load_compose({"REVERIE_TOKEN": TOKEN, "REVERIE_BROKER_PASSWORD": PASSWORD})["services"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_becomes_healthy(composed: Composed, name: str) -> None:
    """Given the broker, when a service's command runs, then its health check says so."""
    composed.await_healthy(name)


def test_what_is_handed_over_with_the_token_is_recalled(composed: Composed) -> None:
    """Given all services, when a message comes in over HTTP, then it can be recalled; without the token nothing is."""
    for name in SERVICES:
        composed.await_healthy(name)
    with Reverie(agent="ana", url=f"http://127.0.0.1:{composed.server_port}", token=TOKEN) as memory:
        message = {"role": "user", "content": "The spare key lies under the third flowerpot."}
        memory.ingest("keys", [message], wait="searchable", timeout_seconds=30)
        found = memory.recall("spare key")

    assert [result.text for result in found.results] == [message["content"]]
    stranger = Reverie(agent="ana", url=f"http://127.0.0.1:{composed.server_port}", token="another")
    with stranger, pytest.raises(Rejected, match="token"):
        stranger.recall("spare key")


def test_flower_sees_all_workers(composed: Composed) -> None:
    """Given Flower and the workers, then it lists each worker once it has heard its heartbeat."""
    for name in ("flower", *WORKERS):
        composed.await_healthy(name)
    url = f"http://127.0.0.1:{composed.flower_port}/workers?json=1"
    deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
    seen: set[str] = set()
    while {"embed", "maintenance", "extraction", "schedules", "ingest-index"} - seen:
        assert time.monotonic() < deadline, seen
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:  # it may be slow to answer
            # A worker is named by its queues and its pid.
            seen = {worker["hostname"].partition("@")[0].rpartition("-")[0] for worker in json.load(answer)["data"]}


def test_flower_comes_and_goes_unnoticed(composed: Composed) -> None:
    """Given Flower that is killed, when a message comes, then the same workers store it; Flower starts again."""
    for name in ("flower", "server", *WORKERS):
        composed.await_healthy(name)
    composed.running["flower"].kill()
    composed.running["flower"].wait()

    with Reverie(agent="ana", url=f"http://127.0.0.1:{composed.server_port}", token=TOKEN) as memory:
        memory.ingest("flower", {"role": "user", "content": "It goes on."}, wait="searchable", timeout_seconds=30)

    assert [composed.running[name].poll() for name in WORKERS] == [None] * len(WORKERS)
    composed.start("flower")
    composed.await_healthy("flower")


def test_nothing_is_written_outside_the_data(composed: Composed) -> None:
    """Given services that have run, then a read-only root would not have stopped them."""
    for name in SERVICES:
        composed.await_healthy(name)
    assert list((composed.folder / "cwd").iterdir()) == []
    assert list((composed.folder / "home").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "server",
        "beat",
        "embed",
        "maintenance",
        "extraction",
        "schedules",
        "pipeline",
        "flower",
        "broker-sync",
        "valkey",
    ],
)
def test_a_service_stops_in_its_grace_and_is_missed(composed: Composed, name: str) -> None:
    """Given a healthy service, when it is asked to stop, then it does in time, leaves no child, and is not healthy."""
    composed.await_healthy(name)
    children = psutil.Process(composed.running[name].pid).children(recursive=True)

    code = composed.stop(name)

    assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM), composed.log(name)
    assert not [child for child in children if is_alive(child)]
    if name in ("server", "flower", "valkey"):  # workers and the clock are missed after 30 s of silence
        assert not composed.is_healthy(name)
