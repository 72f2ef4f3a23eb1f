"""Calls about whole workspaces, through the client: workspaces, agents, files, exports, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from reverie import AsyncReverie, Reverie
from reverie.errors import Rejected
from reverie.sessions.types import AgentSummary, WorkspaceSummary
from reverie.trust.exports import MAX_IMPORTED
from storage.pipeline.records import NewDeadLetter
from support.command_line import CommandLine
from support.http import running_server
from support.stages import drain, pipeline_at_work
from worker.runtime import Runtime

_HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over an empty data folder."""
    with running_server(runtime) as address:
        yield address


def test_only_what_changes_a_workspace_must_name_it(ana: Reverie, url: str) -> None:
    """Given no workspace in the headers, then the agents of the default one are listed, and it cannot be deleted."""
    ana.remember("Kate takes oat milk")
    with httpx2.Client(base_url=url) as http:
        assert [one["name"] for one in http.get("/v1/agents").json()["agents"]] == ["ana"]
        refused = http.delete("/v1/workspace")
        assert (refused.status_code, refused.json()["field"]) == (422, "workspace")
        paths = http.get("/openapi.json").json()["paths"]
    required = {
        path: [one["name"] for one in paths[path][method]["parameters"] if one["in"] == "header" and one["required"]]
        for path, method in (("/v1/agents", "get"), ("/v1/workspace", "delete"), ("/v1/sessions", "get"))
    }
    assert required == {
        "/v1/agents": [],
        "/v1/workspace": ["X-Reverie-Workspace"],
        "/v1/sessions": ["X-Reverie-Agent"],
    }


def test_workspaces_and_agents_are_listed_with_what_they_hold(ana: Reverie, url: str, runtime: Runtime) -> None:
    """Given two agents and two workspaces, then each is listed with its sessions and current memories."""
    assert (ana.admin.workspaces.list(), ana.admin.workspaces.agents()) == ([], [])
    ana.remember("Kate takes oat milk")
    ana.remember("Answers are to be short", tier="account", kind="preference")
    over = ana.remember("It is over tomorrow", expires_at=datetime.now(UTC) + timedelta(days=1)).id
    with runtime.store("default").writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.change(memories.get(over).row_id, now=runtime.now(), expires_at=runtime.now() - 1)
    with Reverie("lif", url=url) as lif, Reverie("lif", url=url, workspace="trips") as there:
        lif.ingest("s1", _HELLO)
        there.remember("The ferry leaves at nine")
        drain(runtime)
        assert ana.admin.workspaces.list() == [
            WorkspaceSummary(name="default", agents=2, sessions=1, memories=1),
            WorkspaceSummary(name="trips", agents=1, sessions=0, memories=1),
        ]
        assert ana.admin.workspaces.list(limit=1, offset=1) == [
            WorkspaceSummary(name="trips", agents=1, sessions=0, memories=1)
        ]
        assert ana.admin.workspaces.agents() == [
            AgentSummary(name="ana", sessions=0, memories=2),
            AgentSummary(name="lif", sessions=1, memories=0),
        ]
        assert there.admin.workspaces.agents() == [
            AgentSummary(name="ana", sessions=0, memories=1),
            AgentSummary(name="lif", sessions=0, memories=1),
        ]
    assert httpx2.get(f"{url}/v1/workspaces").json()["workspaces"][0]["agents"] == 2


@pytest.mark.sqlite("damages a file")
def test_a_workspace_that_cannot_be_read_is_listed_with_its_error(ana: Reverie, runtime: Runtime) -> None:
    """Given a damaged file, then the list names the error, and the other workspaces have their numbers."""
    ana.remember("Kate takes oat milk")
    path = runtime.stores.database_path("broken")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 100)
    broken, good = ana.admin.workspaces.list()
    assert (broken.name, broken.memories) == ("broken", 0)
    assert broken.error
    assert good == WorkspaceSummary(name="default", agents=1, sessions=0, memories=1)


def test_files_are_listed_without_their_text(ana: Reverie, url: str, runtime: Runtime) -> None:
    """Given files of two sessions, then they are listed newest first, with the size of the text, for their agent."""
    assert ana.files.list() == []
    ana.files.add("file:///a.md", "Größe", tags=["x"], metadata={"page": 1})
    ana.files.add("file:///b.md", "other", session="s")
    drain(runtime)
    newest, oldest = ana.files.list()
    assert (newest.source_uri, newest.session, newest.bytes) == ("file:///b.md", "s", 5)
    assert (oldest.source_uri, oldest.bytes, oldest.tags, oldest.metadata) == ("file:///a.md", 7, ["x"], {"page": 1})
    assert ana.files.list(session="s") == [newest]
    assert ana.files.list(limit=1, offset=1) == [oldest]
    with Reverie("lif", url=url) as lif:
        assert lif.files.list() == []


def test_a_file_without_a_session_is_deleted_through_every_face(
    tmp_path: Path,
    ana: Reverie,
    url: str,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Given files of no session, then the client, HTTP and the command line delete one each, and none twice."""
    for name in ("a", "b", "c"):
        ana.files.add(f"file:///{name}.md", f"zanzibar {name}")
    drain(runtime)
    third, second, first = (file.id for file in ana.files.list())
    with Reverie("lif", url=url) as lif:
        assert not lif.files.delete(first)
    assert (ana.files.delete(first), ana.files.delete(first)) == (True, False)
    answered = httpx2.delete(f"{url}/v1/files/{second}", headers={"X-Reverie-Agent": "ana"})
    assert (answered.status_code, answered.json()) == (200, {"deleted": True})
    monkeypatch.setenv("REVERIE_URL", url)
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana")
    deleted, again = (reverie("files", "delete", third, "--yes") for _ in range(2))
    assert (deleted.code, deleted.out) == (0, "Deleted.\n")
    assert (again.code, again.err) == (1, f"reverie: agent ana has no file '{third}'\n")
    (tmp_path / "note.md").write_text("zanzibar")
    monkeypatch.chdir(tmp_path)
    ana.files.add((tmp_path / "note.md").as_uri(), "zanzibar d")
    drain(runtime)
    (tmp_path / "note.md").unlink()
    assert reverie("files", "delete", "note.md", "--yes").code == 0
    assert (ana.files.list(), ana.recall("zanzibar").results) == ([], [])


def test_a_file_is_deleted_by_its_address(ana: Reverie, runtime: Runtime) -> None:
    """Given a document in two sessions and one of a user, then its address deletes those that the caller sees."""
    ana.files.add("docs/a b.md", "zanzibar")
    ana.files.add("docs/a b.md", "zanzibar", session="s")
    ana.files.add("docs/a b.md", "zanzibar", user="kate")
    kept = ana.files.add("docs/c.md", "zanzibar", session="s").accepted
    drain(runtime)
    assert not ana.files.delete("docs/b.md")
    assert (ana.files.delete("docs/a b.md"), ana.files.delete("docs/a b.md")) == (True, False)
    assert [file.id for file in ana.files.list()] == kept
    assert (ana.files.delete("docs/a b.md", user="kate"), ana.files.list(user="kate")) == (True, ana.files.list())


def test_an_export_is_imported_by_another_agent_in_requests_of_bounded_size(
    ana: Reverie, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more memories than a request takes, then all arrive once, by both clients."""
    monkeypatch.setattr("reverie.trust.exports.MAX_IMPORTED", 2)
    assert MAX_IMPORTED > 2
    for number in range(5):
        ana.remember(f"number {number}", id=f"m{number}")
    ana.facts.set("a", "b", "c")
    document = ana.memories.export()
    assert [memory.id for memory in document][:5] == [f"m{number}" for number in range(5)]
    with Reverie("lif", url=url, workspace="other") as lif:
        imported = lif.memories.import_(document)
        assert (imported.added, imported.present) == (6, 0)
        assert [memory.id for memory in lif.memories.export()] == [memory.id for memory in document]

    async def again() -> Any:
        async with AsyncReverie("lif", url=url, workspace="other") as client:
            return await client.memories.import_(msgspec.json.encode(document))

    imported = asyncio.run(again())
    assert (imported.added, imported.present) == (0, 6)


def test_an_import_with_a_mistake_sends_nothing(ana: Reverie, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a mistake in the last of several requests, then nothing is imported; the server checks it, too."""
    monkeypatch.setattr("reverie.trust.exports.MAX_IMPORTED", 1)
    for number in range(3):
        ana.remember(f"number {number}", id=f"m{number}")
    document = msgspec.to_builtins(ana.memories.export())
    document["memories"][2]["importance"] = 2.0
    body = msgspec.json.encode(document)
    with Reverie("lif", url=url) as lif:
        with pytest.raises(Rejected, match=r"memory 2 \(m2\): .*importance.*; nothing was imported"):
            lif.memories.import_(body)
        assert lif.memories.list() == []
    answer = httpx2.post(f"{url}/v1/import", content=body, headers={"X-Reverie-Agent": "lif"})
    assert (answer.status_code, answer.json()["field"]) == (422, "importance")
    newer = httpx2.post(
        f"{url}/v1/import", json={"memories": [], "schema_version": 2}, headers={"X-Reverie-Agent": "lif"}
    )
    assert newer.status_code == 422
    assert "newer than 1" in newer.json()["detail"]


def test_a_replay_says_what_became_of_it(ana: Reverie, runtime: Runtime) -> None:
    """Given a sequence that is taken, then its replay has failed again, in the same letter; without workers it is
    queued, and the letter stays."""
    first = {"role": "user", "content": "First.", "sequence": 1}
    ana.ingest("s", first)
    ana.ingest("s", {**first, "id": "late"})
    drain(runtime)
    (letter,) = ana.admin.dead_letters.list()
    with pipeline_at_work(runtime):
        again = ana.admin.dead_letters.replay(letter.id, timeout_seconds=60)
        assert (again.id, again.replay, again.item_id) == (letter.id, "failed", "late")
        assert "taken by another" in again.error
        assert [letter.id for letter in ana.admin.dead_letters.list()] == [again.id]
    assert ana.admin.dead_letters.replay(again.id, timeout_seconds=0).replay == "queued"
    assert [waiting.id for waiting in ana.admin.dead_letters.list()] == [again.id]


def test_a_replay_that_succeeds_says_so(ana: Reverie, runtime: Runtime) -> None:
    """Given a letter whose cause is gone, when workers are there, then its replay has succeeded."""
    first = {"role": "user", "content": "First.", "sequence": 1}
    ana.ingest("s", first)
    ana.ingest("s", {**first, "id": "late"})
    drain(runtime)
    with runtime.store("default").writing() as tx:
        tx.connection.exec_driver_sql("UPDATE messages SET sequence = 9")
    with pipeline_at_work(runtime):
        done = ana.admin.dead_letters.replay(ana.admin.dead_letters.list()[0].id, timeout_seconds=60)
    assert (done.replay, done.item_id) == ("succeeded", "late")
    assert ana.admin.dead_letters.list() == []


def test_expired_memories_are_listed_only_on_request(ana: Reverie, runtime: Runtime) -> None:
    """Given a memory that has expired and was not pruned yet, then the list leaves it out unless it is asked for."""
    kept = ana.remember("It stays").id
    over = ana.remember("It is over tomorrow", expires_at=datetime.now(UTC) + timedelta(days=1)).id
    with runtime.store("default").writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.change(memories.get(over).row_id, now=runtime.now(), expires_at=runtime.now() - 1)
    assert [memory.id for memory in ana.memories.list()] == [kept]
    assert {memory.id for memory in ana.memories.list(expired=True)} == {kept, over}


def test_a_deletion_of_what_is_not_there_returns_false(ana: Reverie) -> None:
    """Given nothing, or something else, then every deletion says that there was none, and none raises."""
    deletions: list[Callable[[], bool]] = [
        lambda: ana.forget("nope"),
        lambda: ana.facts.forget("a", "nope"),
        lambda: ana.notes.delete("nope"),
        lambda: ana.sessions.forget("nope"),
        lambda: ana.channels.delete("nope"),
        lambda: ana.scratchpads.delete_key("s", "nope"),
        lambda: ana.schedules.delete("nope"),
        lambda: ana.reminders.cancel("nope"),
        lambda: ana.admin.dead_letters.drop(7),
    ]
    assert [delete() for delete in deletions] == [False] * len(deletions)
    ana.remember("so that there is a workspace")
    assert [delete() for delete in deletions] == [False] * len(deletions)
    with Reverie("ana", url=ana.connection.config.url, workspace="nope") as elsewhere:
        assert elsewhere.admin.workspaces.delete() is False


def test_an_error_of_the_server_names_the_argument_as_the_caller_does(ana: Reverie) -> None:
    """Given a reminder that only the server's clock puts after the year 9999, then the error names `in_`."""
    with pytest.raises(Rejected, match="would be due after the year 9999") as caught:
        ana.reminders.add("s", "kate", "hello", in_=253_402_300_000.0)
    assert caught.value.field == "in_"


def test_dead_letters_of_a_workspace_are_those_of_all_its_agents(ana: Reverie, runtime: Runtime) -> None:
    """Given a dead letter of each of two agents, then the list has both only if all agents are asked for."""
    with runtime.store("default").writing() as tx:
        letters = [
            NewDeadLetter(
                agent=agent,
                stage="ingest",
                item_id="i",
                payload=b"{}",
                error_type="Rejected",
                error="no",
                attempts=1,
                session=None,
                trace="t",
            )
            for agent in ("ana", "lif")
        ]
        tx.dead_letters.add(letters, now=runtime.now())
    assert [letter.agent for letter in ana.admin.dead_letters.list()] == ["ana"]
    assert [letter.agent for letter in ana.admin.dead_letters.list(all_agents=True)] == ["lif", "ana"]
