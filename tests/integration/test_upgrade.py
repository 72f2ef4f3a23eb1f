"""An upgrade and the way back while agents go on: nothing is refused, lost or doubled, no message waits for long."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest

from reverie import Reverie
from storage.opened import open_stores
from storage.verify import verify
from support import next_version
from support.forks import RUN_MODULE, Program
from support.gated_worker import wait_until
from support.ports import free_port

TOKEN: Final = "0123456789abcdef" * 2
# docs/scale.md says so, too. What is lost on the way would wait for a sweep, which this test does without.
LONGEST_WAIT_SECONDS: Final = 15.0
# How many messages are searchable beside each change of processes.
BESIDE: Final = 9
AGENTS: Final = 3
# Agents that say as much as they can would keep the following processes from starting.
PAUSE_SECONDS: Final = 0.1


class Generation:
    """The workers and the server of one version on one host."""

    def __init__(self, folder: Path, environment: Mapping[str, str], version: list[str]) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = folder / f"{self._port}.log"
        commands = (["cli", "worker", "--queues", "ingest,index,embed", "--concurrency", "2"], ["server"])
        own = {"REVERIE_PORT": str(self._port), "REVERIE_TOKEN": TOKEN}
        self._processes = [
            Program(RUN_MODULE, [*version, *words], {**environment, **own}, self._log) for words in commands
        ]
        self._worker = str(self._processes[0].pid)

    def wait_ready(self) -> None:
        """Wait until the server answers, and the worker takes tasks."""
        wait_until(self._is_ready, "it is ready")

    def _is_ready(self) -> bool:
        assert [process.poll() for process in self._processes] == [None, None], self.log()
        try:
            answer = httpx2.get(f"{self.url}/v1/status", headers={"Authorization": f"Bearer {TOKEN}"})
        except httpx2.TransportError:
            return False
        workers = answer.json().get("workers", []) if answer.status_code == 200 else []
        return any(str(worker["pid"]) == self._worker for worker in workers)

    def drain(self) -> list[int]:
        """End it as supervisors do, and return the exit codes."""
        for process in self._processes:
            process.terminate()
        return [process.wait(60) for process in self._processes]

    def kill(self) -> None:
        """Kill what is left."""
        for process in self._processes:
            process.kill()
            process.wait()

    def log(self) -> str:
        """Return the end of what its processes wrote."""
        return self._log.read_text("utf-8", "replace")[-3_000:]


class Agents:
    """Agents in threads of their own that say one thing after the other, each searchable before the next."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.waits: dict[str, float] = {}
        self.errors: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._talk, args=(number,)) for number in range(AGENTS)]

    def _talk(self, number: int) -> None:
        said = 0
        while not self._ended.is_set():
            with Reverie("ana", url=self.url, token=TOKEN) as client:
                before = self.url
                while self.url == before and not self._ended.is_set():
                    text = f"agent {number} says {said}"
                    began = time.monotonic()
                    try:
                        client.ingest(f"s{number}", {"role": "user", "content": text}, wait="searchable")
                    except Exception as error:  # each counts as refused
                        self.errors.append(f"{text}: {error!r}")
                        return
                    self.waits[text] = time.monotonic() - began
                    said += 1
                    self._ended.wait(PAUSE_SECONDS)

    def go_on(self) -> None:
        """Wait until some more has been said."""
        enough = len(self.waits) + BESIDE
        wait_until(lambda: self.errors or len(self.waits) >= enough, "agents go on")

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Have them talk during the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()


@pytest.mark.parametrize(
    "engine", [pytest.param("sqlite", marks=pytest.mark.sqlite("two versions on its files")), "postgresql"]
)
def test_agents_notice_nothing_of_an_upgrade_and_of_the_way_back(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, valkey_url: str, broker_prefix: str
) -> None:
    """Given agents that talk all the time, when workers and server are replaced by those of the next version, which
    adds a column, and these by the ones before, then each message was stored once and searchable within seconds.
    """
    url = request.getfixturevalue("database_url") if engine == "postgresql" else None
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "REVERIE_BROKER": valkey_url,
        "REVERIE_BROKER_PREFIX": broker_prefix,
        "REVERIE_EMBEDDING_PROVIDER": "hash",
        **({"REVERIE_DATABASE": url} if url else {}),
    }
    next_version.release(tmp_path / "migrations")
    later = ["support.next_version", str(tmp_path / "migrations")]
    with ExitStack() as stack:

        def start(version: list[str], host: str) -> Generation:
            # Hosts with PostgreSQL have folders of their own; processes of files are all on one host.
            folder = tmp_path / (host if url else "data")
            generation = Generation(tmp_path, {**environment, "REVERIE_DATA": str(folder)}, version)
            stack.callback(generation.kill)
            generation.wait_ready()
            return generation

        present = start([], "first")
        agents = Agents(present.url)
        with agents.talking():
            agents.go_on()
            for version, host in ((later, "second"), ([], "third")):
                following = start(version, host)
                agents.go_on()
                agents.url = following.url
                agents.go_on()
                assert present.drain() == [0, 0], present.log()
                agents.go_on()
                present = following
        assert agents.errors == []
        assert max(agents.waits.values()) < LONGEST_WAIT_SECONDS
        assert present.drain() == [0, 0], present.log()
    stores = open_stores(tmp_path / ("third" if url else "data"), url)
    with stores.workspace("default").reading() as tx:
        rows = tx.connection.exec_driver_sql("SELECT content, mood FROM messages").all()
    verdict = verify(stores.workspace("default"))
    stores.close()
    assert Counter(row[0] for row in rows) == dict.fromkeys(agents.waits, 1)
    assert {row[1] for row in rows} == {"calm"}
    assert (verdict.wrong, verdict.counts["in_vector_index"]) == ([], len(rows))
