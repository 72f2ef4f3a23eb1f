"""The whole stack, from an agent's enqueue to its recall: real processes, a real broker, the real model."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.errors import NotFound, Unavailable, WaitTimeout
from storage.stores import Stores
from storage.verify import verify
from support.stacks import ForkedStack
from worker.supervision.broker_address import embedded_broker_url

WORKSPACE = "story"
CONVERSATION = [
    {"role": "user", "content": "I moved to Lisbon in May, for the light."},
    {"role": "assistant", "content": "How lovely! And what do you do there?"},
    {"role": "user", "content": "I repair violins in a workshop near the river."},
    {"role": "tool", "content": "", "tool_calls": [{"name": "search", "arguments": {"query": "spruce tonewood"}}]},
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One stack with the real model for the tests that only talk to it."""
    with ForkedStack(env={"REVERIE_LOG_FORMAT": "json"}) as running:
        assert running.wait_server(60)
        yield running


@pytest.fixture
def memory(stack: Stack) -> Iterator[Reverie]:
    """A client of an agent of its own: it knows the broker and the server."""
    agent = f"ana-{time.monotonic_ns()}"
    with Reverie(agent, broker=stack.broker_url, url=stack.url, workspace=WORKSPACE) as client:
        yield client


def test_what_was_said_is_recalled_by_its_meaning(memory: Reverie) -> None:
    receipt = memory.ingest("chat-1", CONVERSATION, wait="searchable", timeout_seconds=60)

    found = memory.recall("Which city does the person live in?", limit=2)

    assert receipt.state == "searchable"
    assert receipt.degraded == ""
    assert any("Lisbon" in result.text for result in found)
    assert all(result.explanation is None for result in found), "scores are for those who ask"


def test_the_argument_of_a_tool_call_is_found_by_its_words(memory: Reverie) -> None:
    memory.ingest("chat-1", CONVERSATION, wait="searchable", timeout_seconds=60)

    found = memory.recall("tonewood", mode="keyword", limit=1)

    assert [result.role for result in found] == ["tool"]


def test_an_agent_sees_nothing_of_another(memory: Reverie, stack: Stack) -> None:
    memory.ingest("chat-1", CONVERSATION, wait="searchable", timeout_seconds=60)

    with Reverie("somebody-else", broker=stack.broker_url, url=stack.url, workspace=WORKSPACE) as other:
        assert list(other.recall("Lisbon violins")) == []
        assert other.sessions.list() == []
        with pytest.raises(NotFound):
            other.sessions.messages("chat-1")


def test_a_forgotten_session_is_gone_from_every_answer(memory: Reverie) -> None:
    memory.ingest("chat-1", CONVERSATION, wait="searchable", timeout_seconds=60)
    assert memory.working("chat-1")

    assert memory.sessions.forget("chat-1")

    assert list(memory.recall("Where does the person live?")) == []
    assert memory.sessions.list() == []
    with pytest.raises(NotFound):
        memory.working("chat-1")


def test_the_trace_of_a_call_is_on_the_log_line_of_every_stage(memory: Reverie, stack: Stack) -> None:
    memory.ingest("chat-1", CONVERSATION, wait="searchable", timeout_seconds=60, trace="a-trace-to-follow")

    wanted = {f"reverie.{task}" for task in ("ingest_messages", "chunk_messages", "embed_chunks")}
    _until(lambda: wanted <= _tasks_that_logged(stack, "a-trace-to-follow"))
    assert wanted <= _tasks_that_logged(stack, "a-trace-to-follow")


def test_status_shows_the_pipeline_at_work(memory: Reverie) -> None:
    memory.ingest("chat-1", CONVERSATION, wait="searchable", timeout_seconds=60)

    # The maintenance worker gives way to all others, so on a busy machine it reports long after them.
    workers = {"pipeline", "embed", "maintenance", "beat"}
    answers = []

    def all_report() -> bool:
        answers.append(memory.status())
        return workers <= {worker.name.split("@")[0] for worker in answers[-1].workers}

    _until(all_report)
    status = answers[-1]

    assert status.broker == "up"
    assert status.lag.samples > 0
    assert status.embedder.state == "up"
    assert status.errors == {}


def test_whatever_is_killed_what_was_accepted_is_found_once() -> None:
    with ForkedStack(env={"REVERIE_EMBEDDING_PROVIDER": "hash"}) as stack:
        client = Reverie("ana", broker=stack.broker_url, workspace=WORKSPACE)
        sent = 0
        for victim in ("pipeline", "broker", "embed", "maintenance", "beat", "server"):
            sent += _ingest_again_until_accepted(client, f"while {victim} dies", 25)
            _kill(stack, victim)
            sent += _ingest_again_until_accepted(client, f"after {victim} died", 25)
        _until(lambda: _searchable(stack) == sent, seconds=90)
        client.close()

        store = Stores(stack.data).workspace(WORKSPACE)
        assert verify(store).wrong == []
        assert verify(store).counts["messages"] == sent
        store.database.close()


def test_what_somebody_waits_for_goes_on_while_every_periodic_job_lasts() -> None:
    """Given periodic jobs that end never, when somebody recalls, says and erases, then each is done as ever."""
    environment = {"REVERIE_EMBEDDING_PROVIDER": "hash", "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0"}
    with ForkedStack(env=environment) as stack, Reverie("ana", url=stack.url, workspace=WORKSPACE) as ana:
        assert stack.wait_server(60)
        with _stopped(stack, "maintenance"):
            said = {"role": "user", "content": "I'm allergic to walnuts."}
            ana.ingest("chat", said, user="lif", visibility="shared", wait="searchable", timeout_seconds=60)
            assert len(ana.recall("walnuts", mode="keyword")) > 0
            _until(lambda: len(ana.memories.recall_events()) > 0)
            _until(lambda: len(ana.memories.list(user="lif")) > 0, seconds=120)
            erasure = ana.admin.erasures.create(user="lif")
            _until(lambda: ana.admin.erasures.get(erasure.id).state == "done", seconds=120)
            assert list(ana.recall("walnuts", mode="keyword")) == []


@contextlib.contextmanager
def _stopped(stack: Stack, name: str) -> Iterator[None]:
    """Stop a worker and its children, as a job that never ends does."""
    (pid,) = (process.pid for process in stack.processes() if process.name == name)
    worker = psutil.Process(pid)
    family = [worker, *worker.children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # the supervisor has killed what gave no sign
                process.resume()


def test_it_starts_in_a_folder_that_holds_foreign_modules_of_our_names(tmp_path: Path) -> None:
    for name in ("cli", "tasks", "storage", "server", "worker", "memory", "adapters", "retrieval"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of the caller was imported')\n")
    free = Stack()  # made and not started: a port and a folder with a short name
    data, port = free.data, free.port
    command = [sys.executable, "-P", "-m", "cli", "--data", str(data), "up", "--port", str(port)]
    environment = {**os.environ, "REVERIE_EMBEDDING_PROVIDER": "hash"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        with Reverie("ana", broker=embedded_broker_url(data)) as client:
            _until(lambda: _ingest_again_until_accepted(client, "hello", 1) == 1)
            receipt = client.ingest("chat", CONVERSATION[:1], wait="searchable", timeout_seconds=60)
        assert receipt.state == "searchable"
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        logs = list(data.rglob("*.db-wal"))
        shutil.rmtree(data)
    assert process.returncode == 0
    assert "died" not in output
    assert logs == []  # all rows are in the databases themselves: whoever deletes or leaves out the logs loses none


def _ingest_again_until_accepted(client: Reverie, text: str, count: int) -> int:
    messages = [{"role": "user", "content": f"{text} {number}", "id": f"{text}-{number}"} for number in range(count)]
    deadline = time.monotonic() + 60
    while True:
        try:
            return len(client.ingest("chat", messages, wait="queued").accepted)
        except (Unavailable, WaitTimeout):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _kill(stack: Stack, name: str) -> None:
    for process in stack.processes():
        if process.name == name and process.pid:
            with contextlib.suppress(ProcessLookupError):  # it has just died by itself, for want of the last victim
                os.kill(process.pid, signal.SIGKILL)


def _searchable(stack: Stack) -> int:
    store = Stores(stack.data).workspace(WORKSPACE)
    try:
        return verify(store, quick=True).counts["indexed"]
    finally:
        store.database.close()


def _tasks_that_logged(stack: Stack, trace: str) -> set[str]:
    lines = [
        json.loads(line)
        for name in ("pipeline", "embed")
        for line in _whole_lines(stack.data / "logs" / f"{name}.log")
        if line.startswith("{") and trace in line
    ]
    return {line["task"] for line in lines if trace in line.get("trace_ids", ())}


def _whole_lines(log: Path) -> list[str]:
    """The lines of a log without the last one if it is being written."""
    return log.read_bytes().rpartition(b"\n")[0].decode().splitlines()


def _until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.25)  # some of them verify a store or make a request
