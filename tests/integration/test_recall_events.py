"""What recalls find is recorded by a worker, off the path on which they are answered."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partialmethod
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from adapters.broker.recall_log import QUERY_CHARACTERS, RecallBuffer, RecallLog
from reverie import contract
from reverie.client import AsyncReverie, Reverie
from storage.stores import Store, Stores
from support.command_line import CommandLine
from support.forks import start_module
from support.http import running_server
from support.stages import drain
from worker import app as worker_app
from worker.runtime import Runtime

WORKSPACE = "default"
PATIENCE_SECONDS = 120


@pytest.fixture
def here(runtime: Runtime) -> Iterator[Runtime]:
    """A runtime with two messages and a file of ana's and a message of kate's; the tasks of this process get it."""
    with worker_app.use_runtime(runtime):
        worker_app.app.loader.import_default_modules()
        with running_server(runtime) as url:
            with Reverie("ana", url=url) as ana, Reverie("kate", url=url) as kate:
                ana.ingest("boats", [_user("The harbour was full of boats."), _user("A violin needs new strings.")])
                ana.files.add("file:///notes.md", "Boats are moored at the pier.")
                kate.ingest("hers", [_user("My boats lie in the harbour.")])
            drain(runtime)
        yield runtime


def run(task: str, **arguments: Any) -> Mapping[str, Any]:
    """The body of a task, as a worker runs it."""
    found: Mapping[str, Any] = worker_app.app.tasks[task].body(**arguments)
    return found


def record(here: Runtime, recalls: int) -> Mapping[str, Any]:
    """Wait until the server has handed so many recalls over, then do as the notified worker does."""
    until(lambda: len(here.recall_log.read(WORKSPACE, limit=1_000)) == recalls)
    return run(contract.RECORD_RECALLS, workspace=WORKSPACE)


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again until something holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        pause.wait(0.02)


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def test_what_is_asked_in_a_group_for_nobody_is_not_recorded(here: Runtime, ana: Reverie) -> None:
    """Given a group, when its agent recalls in it for no user, also by a context that takes the last message for the
    query, then the events count and differ by query, and no event has a word of the group."""
    for user in ("lif", "mo"):
        ana.ingest("group", _user(f"{user} saw boats in the harbour and a heron"), user=user)
    drain(here)
    ana.recall("harbour heron", session="group", mode="keyword")
    ana.recall("Harbour, heron!", session="group", mode="keyword")
    ana.context("group")
    record(here, 3)
    queries = [event.query for event in ana.memories.recall_events()]
    assert len(queries) > 3
    assert len(set(queries)) == 2, "equal queries stay equal"
    assert not any("heron" in query.casefold() for query in queries)


def test_a_recall_leads_to_events_and_counts(here: Runtime, ana: Reverie) -> None:
    """Given recalls over HTTP, when a worker has recorded them, then they can be read, the newest first."""
    found = ana.recall("harbour boats", mode="keyword")
    ana.recall("violin", mode="keyword", limit=1)
    assert ana.memories.recall_events() == [], "nothing is recorded before a worker has done it"
    assert record(here, 2)["events"] == 3

    events = ana.memories.recall_events()
    assert [event.query for event in events] == ["violin", "harbour boats", "harbour boats"]
    assert [event.id for event in events[1:]] == [memory.id for memory in found]
    assert [(event.kind, event.session, event.access_count) for event in events[1:]] == [
        ("message", "boats", 1),
        ("file", None, 1),
    ]
    assert events[1].recall == events[2].recall != events[0].recall
    assert events[0].at > events[1].at
    assert [event.score for event in events] == [None] * 3
    assert all(event.score is not None for event in ana.memories.recall_events(explain=True))
    assert ana.memories.recall_events(limit=1) == events[:1]

    ana.recall("violin", mode="keyword", limit=1)
    record(here, 1)
    assert [event.access_count for event in ana.memories.recall_events(limit=2)] == [2, 2]


def test_of_a_long_query_only_the_beginning_is_recorded(here: Runtime, ana: Reverie) -> None:
    """Given a query that is longer than what is kept of one, when it is recorded, then its end is missing."""
    asked = "violin " * QUERY_CHARACTERS
    ana.recall(asked, mode="keyword", limit=1)
    record(here, 1)
    assert [event.query for event in ana.memories.recall_events()] == [asked[:QUERY_CHARACTERS]]


def test_the_request_itself_writes_nothing(here: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given another process that sees every commit, when agents recall, then it sees none until the worker comes."""
    ana.recall("boats")
    record(here, 1)
    writing: list[str] = []
    opened = Store.writing

    def watched(store: Store, **options: Any) -> Any:
        writing.append(store.name)
        return opened(store, **options)

    monkeypatch.setattr(Store, "writing", watched)
    others = Stores(here.settings.data)
    try:
        before = others.stamp(WORKSPACE)
        for _ in range(5):
            assert len(ana.recall("boats"))
        ana.sessions.search("boats")
        ana.memories.recall_events()
        until(lambda: len(here.recall_log.read(WORKSPACE, limit=10)) == 5)
        assert (others.stamp(WORKSPACE), writing) == (before, [])
        run(contract.RECORD_RECALLS, workspace=WORKSPACE)
        assert others.stamp(WORKSPACE) != before
        assert writing == [WORKSPACE]
    finally:
        others.close()


def test_another_agent_sees_nothing(here: Runtime, url: str, ana: Reverie) -> None:
    """Given recalls of ana's, then kate sees only her own, and in another workspace ana sees none."""
    ana.recall("boats", mode="keyword")
    with Reverie("kate", url=url) as kate, Reverie("ana", url=url, workspace="elsewhere") as elsewhere:
        kate.recall("boats", mode="keyword")
        record(here, 2)
        assert [event.session for event in kate.memories.recall_events(limit=1_000)] == ["hers"]
        assert elsewhere.memories.recall_events() == []
    assert "hers" not in {event.session for event in ana.memories.recall_events()}


def test_a_recall_that_finds_nothing_leaves_nothing(here: Runtime, ana: Reverie) -> None:
    """Given a recall without results, then there is nothing to record."""
    assert len(ana.recall("zanzibar", mode="keyword")) == 0
    assert len(ana.recall("boats", mode="keyword", limit=1)) == 1
    assert record(here, 1)["events"] == 1


def test_recording_twice_changes_nothing_the_second_time(here: Runtime, ana: Reverie) -> None:
    """Given a task delivered twice, then events and counts are those of once."""
    ana.recall("boats")
    record(here, 1)
    before = ana.memories.recall_events()
    assert run(contract.RECORD_RECALLS, workspace=WORKSPACE)["events"] == 0
    assert ana.memories.recall_events() == before


def test_a_worker_that_dies_between_writing_and_removing_counts_nothing_twice(
    here: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a death after the commit, when the task comes again, then the log is empty and everything counted once."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    ana.recall("violin", mode="keyword")
    with monkeypatch.context() as patch:
        patch.setattr(RecallLog, "remove", die)
        with pytest.raises(Killed):
            record(here, 1)
    assert [event.access_count for event in ana.memories.recall_events()] == [1]
    assert here.recall_log.workspaces() == [WORKSPACE]
    here.recall_log.give_back(WORKSPACE, with_note=True)  # as when its time has ended
    assert record(here, 1)["events"] == 0
    assert [event.access_count for event in ana.memories.recall_events()] == [1]
    assert here.recall_log.workspaces() == []


def test_a_log_nobody_was_woken_for_is_found_by_the_sweep(here: Runtime, ana: Reverie) -> None:
    """Given a lost notification, when the sweep runs, then the recording is on its way again."""
    here.broker.delete(here.settings.broker_prefix + "index")
    ana.recall("boats")
    until(lambda: here.monitor.queue_depths()["index"] == 1)
    assert here.recall_log.workspaces() == [WORKSPACE]
    here.broker.delete(here.settings.broker_prefix + "index")
    here.inbox.clear_notification(contract.RECORD_RECALLS, WORKSPACE)
    assert run(contract.SWEEP_STAGES, manual=True)["recall_logs"] == 1
    assert here.monitor.queue_depths()["index"] == 1
    record(here, 1)
    assert run(contract.SWEEP_STAGES, manual=True)["recall_logs"] == 0


def test_a_worker_records_by_itself(here: Runtime, ana: Reverie, tmp_path: Path) -> None:
    """Given a real worker, when agents recall, then events come about by themselves."""
    environment = {**os.environ, **_settings(here)}
    words = ("cli", "worker", "--queues", "index", "--concurrency", "1")
    worker = start_module(*words, environment=environment, output=tmp_path / "output")
    family = [psutil.Process(worker.pid)]
    try:
        ana.recall("boats", mode="keyword")
        until(lambda: len(ana.memories.recall_events()) == 2)
        ana.recall("violin", mode="keyword")
        until(lambda: len(ana.memories.recall_events()) == 3)
        newest, *older = ana.memories.recall_events()
        assert (newest.query, [event.query for event in older]) == ("violin", ["boats", "boats"])
        assert {event.access_count for event in (newest, *older)} == {1}
        assert {event.kind for event in older} == {"message", "file"}
        family += family[0].children(recursive=True)
    finally:
        worker.terminate()
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_SECONDS)
        for process in alive:
            process.kill()
        worker.wait()


def test_without_a_broker_recall_answers_as_ever(here: Runtime, make_runtime: Callable[..., Runtime]) -> None:
    """Given a broker that is away, when agents recall, then they get their answer, and the recall waits in memory."""
    alone = make_runtime(broker="redis://127.0.0.1:1/0")
    with running_server(alone) as url, Reverie("ana", url=url) as ana:
        for _ in range(3):
            assert len(ana.recall("boats", mode="keyword")) == 2
        until(lambda: alone.recall_buffer.waiting == 3)
        assert alone.recall_buffer.dropped == 0


def test_what_was_dropped_is_in_the_metrics(here: Runtime, url: str) -> None:
    """Given recalls that could not be kept, then Prometheus is told how many, without a name."""
    assert "reverie_recalls_dropped_total 0.0" in httpx2.get(f"{url}/metrics").text
    here.recall_buffer.dropped = 7
    assert "reverie_recalls_dropped_total 7.0" in httpx2.get(f"{url}/metrics").text


def test_it_can_be_switched_off(here: Runtime, make_runtime: Callable[..., Runtime]) -> None:
    """Given the setting, then nothing is noted, and nothing of it is in the broker."""
    silent = make_runtime(recall_events_days=0)
    with running_server(silent) as url, Reverie("ana", url=url) as ana:
        assert len(ana.recall("boats"))
        assert silent.recall_buffer.waiting == 0
    silent.recall_buffer.close()
    assert here.recall_log.workspaces() == []


def test_what_a_server_still_holds_when_it_ends_is_handed_over(
    here: Runtime, make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a recall that was just answered, when the server ends, then it is in the log."""
    # The broker answers, but a busy machine may not let it within the two seconds that an end has for this.
    monkeypatch.setattr(RecallBuffer, "close", partialmethod(RecallBuffer.close, PATIENCE_SECONDS))
    ending = make_runtime()
    with running_server(ending) as url, Reverie("ana", url=url) as ana:
        ana.recall("boats")
    ending.close()
    assert len(here.recall_log.read(WORKSPACE, limit=10)) == 1


def test_a_deleted_workspace_takes_its_recalls_along(here: Runtime, ana: Reverie) -> None:
    """Given recalls that nobody has recorded, when the workspace is deleted, then they are gone from the broker."""
    ana.recall("boats")
    until(lambda: here.recall_log.workspaces() == [WORKSPACE])
    assert ana.admin.workspaces.delete()
    assert here.recall_log.workspaces() == []
    assert run(contract.RECORD_RECALLS, workspace=WORKSPACE)["recalls"] == 0
    assert here.stores.names() == []


def test_a_forgotten_session_takes_its_events_along(here: Runtime, ana: Reverie) -> None:
    """Given events of a session, when it is forgotten, then none of them is told of any more."""
    ana.recall("boats", mode="keyword")
    record(here, 1)
    ana.sessions.forget("boats")
    assert [event.kind for event in ana.memories.recall_events()] == ["file"]


@pytest.mark.parametrize(
    ("query", "field"),
    [("explain=1", "explain"), ("limit=0", "limit"), ("limit=1001", "limit"), ("agent=kate", "agent")],
)
def test_a_parameter_at_fault_is_named(url: str, query: str, field: str) -> None:
    """Given a parameter that cannot be, then the answer says which."""
    answer = httpx2.get(f"{url}/v1/recall-events?{query}", headers={"X-Reverie-Agent": "ana"})
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert httpx2.get(f"{url}/v1/recall-events").status_code == 422


def test_the_schema_describes_the_answer(url: str) -> None:
    """Given the OpenAPI document, then it knows what the route answers with."""
    document = httpx2.get(f"{url}/openapi.json").json()
    assert "/v1/recall-events" in document["paths"]
    assert "RecallEventList" in document["components"]["schemas"]


def test_the_asynchronous_client_asks_the_same(here: Runtime, url: str, ana: Reverie) -> None:
    """Given events, then both clients return them."""
    ana.recall("boats")
    record(here, 1)

    async def ask() -> list[Any]:
        async with AsyncReverie("ana", url=url) as memory:
            return [*await memory.memories.recall_events(limit=3, explain=True)]

    assert asyncio.run(ask()) == ana.memories.recall_events(limit=3, explain=True)


def test_the_command_line_shows_them(
    here: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given events, then `reverie recalls` prints this agent's, as a table or as JSON."""
    ana.recall("harbour\nboats", mode="keyword")
    record(here, 1)

    for name, value in _settings(here).items():
        monkeypatch.setenv(name, value)
    command = CommandLine(monkeypatch, capsys)

    def reverie(agent: str, *arguments: str) -> str:
        ran = command("--agent", agent, "recalls", *arguments)
        assert ran.code == 0, ran.err
        return ran.out

    shown = json.loads(reverie("ana", "--json", "--limit", "1"))
    (event,) = ana.memories.recall_events(limit=1)
    assert [(item["id"], item["query"], "score" in item) for item in shown] == [(event.id, "harbour\nboats", False)]
    table = reverie("ana", "--explain")
    assert "harbour boats" in table
    assert "score" in table
    assert "has recalled nothing" in reverie("kate")
    assert "for a user is listed with --user NAME" in reverie("kate")
    assert "--user NAME" not in reverie("kate", "--user", "joe")


def _settings(here: Runtime) -> dict[str, str]:
    return {
        "REVERIE_DATA": str(here.settings.data),
        "REVERIE_BROKER": here.settings.broker_url,
        "REVERIE_BROKER_PREFIX": here.settings.broker_prefix,
        "REVERIE_EMBEDDING_PROVIDER": "hash",
    }
