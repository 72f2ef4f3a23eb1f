"""Memories, facts and notes through the public faces: client, asyncio client and HTTP, from writing to recall."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from memory.recall import record_recalls
from reverie import AsyncReverie, Reverie
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, NotFound, Rejected, WaitTimeout
from reverie.memories.tool import memory_tool, memory_tool_async
from support.command_line import CommandLine
from support.http import running_server
from support.stages import drain, pipeline_at_work
from worker.runtime import Runtime

HEADERS = {"X-Reverie-Agent": "ana"}


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over an empty data folder."""
    with running_server(runtime) as address:
        yield address


def test_what_is_remembered_is_read_recalled_and_forgotten(ana: Reverie, runtime: Runtime) -> None:
    """Given the calls of the README, when the pipeline has run, then the memory is recalled until it is forgotten."""
    kept = ana.remember("Kate takes oat milk", tags=[" Coffee ", "coffee"])
    assert kept.ok
    stored = ana.memories.get(kept.id)
    assert (stored.content, stored.tags, stored.agent) == ("Kate takes oat milk", ["coffee"], "ana")
    assert (stored.tier, stored.lifetime, stored.kind, stored.source) == ("workspace", "short_term", "fact", "agent")
    assert "oat" in stored.concept_tags
    drain(runtime)
    assert [memory.id for memory in ana.memories.search("oat milk")] == [kept.id]
    assert [result.text for result in ana.recall("oat milk", mode="keyword")] == ["Kate takes oat milk"]
    assert ana.forget(kept.id)
    assert not ana.forget(kept.id)
    assert list(ana.memories.search("oat milk")) == []
    with pytest.raises(NotFound, match=kept.id):
        ana.memories.get(kept.id)


def test_a_memory_waited_for_can_be_recalled(ana: Reverie, runtime: Runtime) -> None:
    """Given workers, when a memory is remembered with wait=searchable, then the next search finds it."""
    with pipeline_at_work(runtime):
        kept = ana.remember("The spare key is with Otto", wait="searchable", timeout_seconds=60)
        assert [memory.id for memory in ana.memories.search("spare key")] == [kept.id]


def test_a_wait_without_workers_ends_and_the_memory_is_stored(ana: Reverie) -> None:
    """Given no workers, when searchable is waited for, then the caller is told that it is stored, with its id."""
    with pytest.raises(WaitTimeout, match="is stored, but was not searchable") as caught:
        ana.remember("Something slow", id="slow", wait="searchable", timeout_seconds=0.1)
    assert caught.value.accepted == ("slow",)
    assert ana.memories.get("slow").content == "Something slow"


def test_an_account_memory_is_found_in_every_workspace_of_its_agent_alone(
    ana: Reverie, url: str, runtime: Runtime
) -> None:
    """Given a preference in the account tier, then another workspace has it, another agent has not, and deleting
    the workspace leaves it."""
    kept = ana.remember("Answers are to be short", tier="account", kind="preference")
    ana.remember("Only here")
    drain(runtime, ACCOUNT_STORE)
    with Reverie("ana", url=url, workspace="other") as elsewhere, Reverie("kate", url=url) as kate:
        assert elsewhere.memories.get(kept.id).tier == "account"
        assert [memory.id for memory in elsewhere.memories.list()] == [kept.id]
        assert [memory.id for memory in elsewhere.memories.search("short answers")] == [kept.id]
        assert kate.memories.list() == []
        assert list(kate.memories.search("short answers")) == []
        with pytest.raises(NotFound):
            kate.memories.get(kept.id)
        assert not kate.forget(kept.id)
        assert ana.admin.workspaces.delete()
        assert [memory.id for memory in ana.memories.list()] == [kept.id]
        assert elsewhere.forget(kept.id)
        assert ana.memories.list() == []


def test_a_search_ranks_both_stores_as_one_and_counts_as_a_recall(ana: Reverie, runtime: Runtime) -> None:
    """Given memories in both stores, when one fits better, then it leads whichever store it lies in; what a search
    found was accessed, and what it did not find was not."""
    here = ana.remember("Kate rows boats in the harbour").id
    there = ana.remember("Letters are answered in Portuguese", tier="account", kind="procedure").id
    ana.ingest("s", [{"role": "user", "content": "Was that letter answered in Portuguese?"}])
    drain(runtime)
    drain(runtime, ACCOUNT_STORE)
    for query, best in (("boats in the harbour", here), ("letters in Portuguese", there)):
        assert [memory.id for memory in ana.memories.search(query, limit=1)] == [best]
    runtime.recall_buffer.flush()
    for workspace in ("default", ACCOUNT_STORE):
        record_recalls(runtime.recall_log, runtime.stores, workspace=workspace)
    assert [ana.memories.get(memory_id).access_count for memory_id in (here, there)] == [1, 1]
    assert {event.id for event in ana.memories.recall_events()} == {here, there}


def test_a_page_goes_over_both_stores(ana: Reverie) -> None:
    """Given memories in turn in the workspace and in the account, then pages have them newest first, each once."""
    ids = [ana.remember(f"number {n}", tier="account" if n % 2 else "workspace", kind="procedure").id for n in range(7)]
    pages = [memory.id for offset in (0, 3, 6) for memory in ana.memories.list(limit=3, offset=offset)]
    assert pages == ids[::-1]
    assert [memory.id for memory in ana.memories.list(tier="account")] == [ids[5], ids[3], ids[1]]
    assert ana.memories.list(limit=3, offset=2**53) == []


def test_filters_apply_together(ana: Reverie) -> None:
    """Given memories that differ, then each filter leaves those that it names."""
    first = ana.remember("Green tea", tags=["tea", "drinks"], importance=0.9, session="s", source="user").id
    second = ana.remember("Black tea", tags=["tea"], kind="preference", channel="kitchen", tier="channel").id
    assert [memory.id for memory in ana.memories.list(tags=["tea"])] == [second, first]
    assert [memory.id for memory in ana.memories.list(tags=["drinks", "tea"])] == [first]
    assert [memory.id for memory in ana.memories.list(session="s")] == [first]
    assert [memory.id for memory in ana.memories.list(channel="kitchen")] == [second]
    assert [memory.id for memory in ana.memories.list(kind="preference", text="BLACK")] == [second]
    assert [memory.id for memory in ana.memories.list(source="user")] == [first]
    assert [memory.id for memory in ana.memories.list(lifetime="long_term")] == [first]
    assert ana.memories.list(tier="account") == []
    for wrong in ("tier", "lifetime", "kind"):
        with pytest.raises(Rejected, match=wrong) as caught:
            ana.memories.list(**{wrong: "no such"})  # type: ignore[arg-type]
        assert caught.value.field == wrong


def test_a_changed_memory_is_found_by_its_new_words_alone(ana: Reverie, runtime: Runtime) -> None:
    """Given an indexed memory, when its content changes, then its old words find it no more once the pipeline ran."""
    kept = ana.remember("The meeting is on Monday", tags=["work"])
    drain(runtime)
    changed = ana.memories.update(kept.id, content="The standup moved to Thursday", importance=0.9, pinned=True)
    assert (changed.id, changed.tags, changed.lifetime, changed.importance) == (kept.id, ["work"], "long_term", 0.9)
    assert "standup" in changed.concept_tags
    assert list(ana.memories.search("meeting Monday", mode="keyword")) == []
    drain(runtime)
    assert [memory.id for memory in ana.memories.search("standup Thursday", mode="keyword")] == [kept.id]
    ends = ana.memories.update(kept.id, expires_at="2099-01-01T00:00:00Z")
    assert ends.expires_at == datetime(2099, 1, 1, tzinfo=UTC)
    assert ana.memories.update(kept.id, expires_at=None).expires_at is None


def test_facts_over_http(ana: Reverie, url: str, runtime: Runtime) -> None:
    """Given facts, then the newest value stands, is recalled alone, and the history has both until all is deleted."""
    ana.facts.set("profile", "home city", "Porto", source="user")
    ana.facts.set("profile", "home city", "Lisbon")
    ana.facts.set("a/b", "..", "dots and slashes")
    drain(runtime)
    assert ana.facts.get("profile", "home city").value == "Lisbon"
    assert [fact.value for fact in ana.facts.history("profile", "home city")] == ["Lisbon", "Porto"]
    assert [fact.key for fact in ana.facts.list("profile")] == ["home city"]
    assert ana.facts.get("a/b", "..").value == "dots and slashes"
    found = ana.memories.search("home city", mode="keyword")  # the vectors of this embedder have no meaning
    assert [memory.value for memory in found] == ["Lisbon"]
    assert list(ana.memories.search("Porto", mode="keyword")) == []
    with Reverie("kate", url=url) as kate, pytest.raises(NotFound, match="profile/home city"):
        kate.facts.get("profile", "home city")
    assert ana.facts.forget("profile", "home city")
    assert not ana.facts.forget("profile", "home city")
    with pytest.raises(NotFound):
        ana.facts.history("profile", "home city")


def test_notes_over_http(ana: Reverie, url: str, runtime: Runtime) -> None:
    """Given a note about a user, then it lies in that user's session, keeps its id and time when it changes, and
    no other agent can see, change or delete it."""
    note = ana.notes.add("Likes window seats", tags=["Travel"], user="kate")
    assert note.note_id.startswith("note-")
    assert (note.session, note.tags) == ("memory:kate", ["travel"])
    with pytest.raises(NotFound):  # it is Kate's
        ana.notes.update(note.note_id, "Likes aisle seats")
    changed = ana.notes.update(note.note_id, "Likes aisle seats", user="kate")
    assert (changed.note_id, changed.created_at, changed.tags) == (note.note_id, note.created_at, ["travel"])
    assert changed.updated_at > note.updated_at
    assert [found.content for found in ana.notes.list(user="kate", tags=["travel"])] == ["Likes aisle seats"]
    assert ana.notes.list(user="otto") == []
    drain(runtime)
    assert [memory.note_id for memory in ana.memories.search("aisle seats", user="kate")] == [note.note_id]
    assert list(ana.memories.search("aisle seats")) == []
    with Reverie("kate", url=url) as kate:
        with pytest.raises(NotFound, match=note.note_id):
            kate.notes.get(note.note_id)
        with pytest.raises(NotFound, match=note.note_id):
            kate.notes.update(note.note_id, "mine now")
        assert not kate.notes.delete(note.note_id)
    assert ana.notes.delete(note.note_id, user="kate")
    assert list(ana.memories.search("aisle seats", user="kate")) == []


def test_the_same_post_twice_stores_once(ana: Reverie, url: str) -> None:
    """Given bodies sent twice, as a client does after a broken connection, then there is one of each."""
    with httpx2.Client(base_url=url, headers=HEADERS) as http:
        for _ in range(2):
            assert http.post("/v1/memories", json={"id": "m", "content": "Once"}).json() == {"id": "m", "ok": True}
            assert http.post("/v1/notes", json={"note_id": "n", "content": "Once"}).status_code == 200
            assert http.put("/v1/facts/a/b", json={"value": "Once"}).status_code == 200
        taken = http.post("/v1/memories", json={"id": "m", "content": "Something else"})
    assert (taken.status_code, taken.json()["field"]) == (409, "id")
    assert len(ana.memories.list()) == 3
    assert ana.memories.stats().memories == 3


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/v1/memories", {}, "content"),
        ("POST", "/v1/memories", {"content": " \n"}, "content"),
        ("POST", "/v1/memories", {"content": "x", "importance": 1.01}, "importance"),
        ("POST", "/v1/memories", {"content": "x", "tier": "planet"}, "tier"),
        ("POST", "/v1/memories", {"content": "x", "lifetime": "ever"}, "lifetime"),
        ("POST", "/v1/memories", {"content": "x", "tier": "account"}, "tier"),
        ("POST", "/v1/memories", {"content": "x", "wait": "queued"}, "wait"),
        ("POST", "/v1/memories", {"content": "x", "timeout_seconds": 0}, "timeout_seconds"),
        ("POST", "/v1/memories", {"content": "x", "score": 1}, "score"),
        ("POST", "/v1/memories", {"content": "x", "tags": ["x" * 65]}, "tags"),
        ("POST", "/v1/memories/search", {"query": "x", "limit": 0}, "limit"),
        ("POST", "/v1/memories/search", {"limit": 1}, "query"),
        ("PUT", "/v1/facts/a/b", {"value": ""}, "value"),
        ("PUT", "/v1/facts/a/b", {"value": "x", "source": "dream"}, "source"),
        ("PUT", "/v1/facts/a/%20", {"value": "x"}, "key"),
        ("POST", "/v1/notes", {"content": ""}, "content"),
        ("GET", "/v1/memories?superseded=perhaps", None, "superseded"),
        ("GET", "/v1/memories?colour=red", None, "colour"),
        ("GET", "/v1/notes?limit=0", None, "limit"),
    ],
)
def test_a_request_at_fault_names_its_field(
    url: str, method: str, path: str, body: dict[str, Any] | None, field: str
) -> None:
    """Given a body or a parameter at fault, then the problem names it and nothing is stored."""
    with httpx2.Client(base_url=url, headers=HEADERS) as http:
        answered = http.request(method, path, json=body)
        assert (answered.status_code, answered.json()["field"]) == (422, field), answered.text
        assert http.get("/v1/memories").json() == {"memories": []}


def test_every_route_is_described(url: str) -> None:
    """Given the OpenAPI document, then the paths of memories, facts and notes are in it with their schemas."""
    with httpx2.Client(base_url=url) as http:
        document = http.get("/openapi.json").json()
    assert {"get", "patch", "delete"} <= set(document["paths"]["/v1/memories/{id}"])
    assert {"get", "put", "delete"} <= set(document["paths"]["/v1/facts/{category}/{key}"])
    assert {"get", "put", "delete"} <= set(document["paths"]["/v1/notes/{note_id}"])
    assert {"Remember", "Memory", "MemoryStats", "Fact", "Note"} <= set(document["components"]["schemas"])


def test_the_asyncio_client_has_the_same_calls(url: str, runtime: Runtime) -> None:
    """Given an AsyncReverie, then every call about memories can be awaited, and answers and raises the same."""

    async def everything() -> None:
        async with AsyncReverie("ana", url=url) as ana:
            kept = await ana.remember("Otto plays the cello", tags=["music"])
            assert (await ana.memories.get(kept.id)).tags == ["music"]
            await asyncio.get_running_loop().run_in_executor(None, functools.partial(drain, runtime))
            assert len(await ana.memories.search("cello")) == 1
            assert (await ana.memories.update(kept.id, importance=0.7)).importance == 0.7
            assert (await ana.memories.stats()).memories == len(await ana.memories.list()) == 1
            assert (await ana.facts.set("a", "b", "c")).value == (await ana.facts.get("a", "b")).value == "c"
            assert len(await ana.facts.list()) == len(await ana.facts.history("a", "b")) == 1
            assert await ana.facts.forget("a", "b")
            note = await ana.notes.add("a note")
            assert (await ana.notes.update(note.note_id, "changed")).content == "changed"
            assert (await ana.notes.get(note.note_id)) == (await ana.notes.list())[0]
            assert await ana.notes.delete(note.note_id)
            assert (await memory_tool_async(ana, "forget", id=kept.id)) == {"ok": True}
            assert not await ana.forget(kept.id)
            with pytest.raises(NotFound):
                await ana.memories.get(kept.id)

    asyncio.run(everything())


def test_the_tool_over_a_real_server(ana: Reverie, runtime: Runtime) -> None:
    """Given the tool, then its three actions answer as it says, without scores."""
    kept = memory_tool(ana, "remember", content="Kate takes oat milk", tags=["coffee"], context="breakfast")
    drain(runtime)
    found = memory_tool(ana, "recall", query="oat milk")
    assert found == {
        "ok": True,
        "results": [{"id": kept["id"], "content": "Kate takes oat milk", "tags": ["coffee"]}],
    }
    assert ana.memories.get(kept["id"]).metadata == {"context": "breakfast"}
    assert memory_tool(ana, "forget", id=kept["id"]) == {"ok": True}
    assert memory_tool(ana, "recall", query="oat milk") == {"ok": True, "results": []}


def test_many_setting_one_fact_at_once_leave_one_value(url: str) -> None:
    """Given eight threads that set one fact to different values, then one stands and all others are behind it."""
    with Reverie("ana", url=url) as ana:
        threads = [threading.Thread(target=ana.facts.set, args=("race", "winner", f"runner {n}")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        history = ana.facts.history("race", "winner")
        assert ana.facts.get("race", "winner") == history[0]
        assert [fact.superseded_at is None for fact in history] == [True] + [False] * 7
        with pytest.raises(Conflict, match="was replaced by"):
            ana.memories.update(history[1].id, importance=1.0)


def test_the_command_line_searches_and_collects(
    ana: Reverie, url: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a running server, then `reverie memory search` finds what it holds, and `memory gc` says in a dry run what
    it would remove, and removes it without one."""
    kept = ana.remember("Otto plays the cello")
    over = ana.remember("Only for a moment")
    with drain(runtime).writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.change(memories.get(over.id).row_id, now=runtime.now(), expires_at=runtime.now() - 1)
    settings = runtime.settings
    command = CommandLine(
        monkeypatch,
        capsys,
        *("--agent", "ana", "memory"),
        port=urlsplit(url).port,
        data=settings.data,
        broker=settings.broker_url,
        broker_prefix=settings.broker_prefix,
        embedding_provider="hash",
    )

    def reverie(*arguments: str) -> Any:
        ran = command(*arguments, "--json")
        assert ran.code == 0, ran.err
        return ran.json

    assert [found["id"] for found in reverie("search", "cello", "--limit", "1")["results"]] == [kept.id]
    assert reverie("gc", "--dry-run")["expired"] == 1
    assert ana.memories.get(over.id)
    assert reverie("gc")["expired"] == 1
    assert [memory.id for memory in ana.memories.list()] == [kept.id]


def test_garbage_is_collected_on_the_server_that_the_address_names(
    ana: Reverie,
    url: str,
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Given the address of a server, then `memory gc` removes what has expired there, and not on this machine."""
    over = ana.remember("Only for a moment")
    with drain(runtime).writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.change(memories.get(over.id).row_id, now=runtime.now(), expires_at=runtime.now() - 1)
    here = tmp_path / "here"
    command = CommandLine(monkeypatch, capsys, "--agent", "ana", url=url, data=here, embedding_provider="none")
    ended = command("memory", "gc", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["expired"] == 1
    assert not here.exists()
