"""Memories, facts and notes through the public faces: client, asyncio client and HTTP, from writing to recall."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from memory.recall.events import record_recalls
from reverie import AsyncReverie, Reverie
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, NotFound, Rejected, WaitTimeout
from reverie.memories.tool import memory_tool, memory_tool_async
from support.http import running_server
from support.stages import drain, pipeline_at_work
from worker.runtime import Runtime

HEADERS = {"X-Reverie-Agent": "ana"}


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over an empty data folder."""
    with running_server(runtime) as address:
        yield address


@pytest.fixture
def ana(url: str) -> Iterator[Reverie]:
    """A client of ana's."""
    with Reverie("ana", url=url) as client:
        yield client


def test_what_is_remembered_is_read_recalled_and_forgotten(ana: Reverie, runtime: Runtime) -> None:
    """Given the calls of the README, when the pipeline has run, then the memory is recalled until it is forgotten."""
    kept = ana.remember("Kate takes oat milk", tags=[" Coffee ", "coffee"])
    assert kept.ok
    stored = ana.memory(kept.id)
    assert (stored.content, stored.tags, stored.agent) == ("Kate takes oat milk", ["coffee"], "ana")
    assert (stored.tier, stored.lifetime, stored.kind, stored.source) == ("workspace", "short_term", "fact", "agent")
    assert "oat" in stored.concept_tags
    drain(runtime)
    assert [memory.id for memory in ana.search_memories("oat milk")] == [kept.id]
    assert [result.text for result in ana.recall("oat milk", mode="keyword")] == ["Kate takes oat milk"]
    assert ana.forget(kept.id)
    assert not ana.forget(kept.id)
    assert list(ana.search_memories("oat milk")) == []
    with pytest.raises(NotFound, match=kept.id):
        ana.memory(kept.id)


def test_a_memory_waited_for_can_be_recalled(ana: Reverie, runtime: Runtime) -> None:
    """Given workers, when a memory is remembered with wait=searchable, then the next search finds it."""
    with pipeline_at_work(runtime):
        kept = ana.remember("The spare key is with Otto", wait="searchable", timeout_seconds=60)
        assert [memory.id for memory in ana.search_memories("spare key")] == [kept.id]


def test_a_wait_without_workers_ends_and_the_memory_is_stored(ana: Reverie) -> None:
    """Given no workers, when searchable is waited for, then the caller is told that it is stored, with its id."""
    with pytest.raises(WaitTimeout, match="is stored, but was not searchable") as caught:
        ana.remember("Something slow", id="slow", wait="searchable", timeout_seconds=0.1)
    assert caught.value.accepted == ("slow",)
    assert ana.memory("slow").content == "Something slow"


def test_an_account_memory_is_found_in_every_workspace_of_its_agent_alone(
    ana: Reverie, url: str, runtime: Runtime
) -> None:
    """Given a preference in the account tier, then another workspace has it, another agent has not, and deleting
    the workspace leaves it."""
    kept = ana.remember("Answers are to be short", tier="account", kind="preference")
    ana.remember("Only here")
    drain(runtime, ACCOUNT_STORE)
    with Reverie("ana", url=url, workspace="other") as elsewhere, Reverie("kate", url=url) as kate:
        assert elsewhere.memory(kept.id).tier == "account"
        assert [memory.id for memory in elsewhere.memories()] == [kept.id]
        assert [memory.id for memory in elsewhere.search_memories("short answers")] == [kept.id]
        assert kate.memories() == []
        assert list(kate.search_memories("short answers")) == []
        with pytest.raises(NotFound):
            kate.memory(kept.id)
        assert not kate.forget(kept.id)
        assert ana.delete_workspace()
        assert [memory.id for memory in ana.memories()] == [kept.id]
        assert elsewhere.forget(kept.id)
        assert ana.memories() == []


def test_a_search_ranks_both_stores_as_one_and_counts_as_a_recall(ana: Reverie, runtime: Runtime) -> None:
    """Given memories in both stores, when one fits better, then it leads whichever store it lies in; what a search
    found was accessed, and what it did not find was not."""
    here = ana.remember("Kate rows boats in the harbour").id
    there = ana.remember("Letters are answered in Portuguese", tier="account", kind="procedure").id
    ana.ingest("s", [{"role": "user", "content": "Was that letter answered in Portuguese?"}])
    drain(runtime)
    drain(runtime, ACCOUNT_STORE)
    for query, best in (("boats in the harbour", here), ("letters in Portuguese", there)):
        assert [memory.id for memory in ana.search_memories(query, limit=1)] == [best]
    runtime.recall_buffer.flush()
    for workspace in ("default", ACCOUNT_STORE):
        record_recalls(runtime.recall_log, runtime.stores, workspace=workspace)
    assert [ana.memory(memory_id).access_count for memory_id in (here, there)] == [1, 1]
    assert {event.id for event in ana.recall_events()} == {here, there}


def test_a_page_goes_over_both_stores(ana: Reverie) -> None:
    """Given memories in turn in the workspace and in the account, then pages have them newest first, each once."""
    ids = [ana.remember(f"number {n}", tier="account" if n % 2 else "workspace", kind="procedure").id for n in range(7)]
    pages = [memory.id for offset in (0, 3, 6) for memory in ana.memories(limit=3, offset=offset)]
    assert pages == ids[::-1]
    assert [memory.id for memory in ana.memories(tier="account")] == [ids[5], ids[3], ids[1]]
    assert ana.memories(limit=3, offset=2**53) == []


def test_filters_apply_together(ana: Reverie) -> None:
    """Given memories that differ, then each filter leaves those that it names."""
    first = ana.remember("Green tea", tags=["tea", "drinks"], importance=0.9, session="s", source="user").id
    second = ana.remember("Black tea", tags=["tea"], kind="preference", channel="kitchen", tier="channel").id
    assert [memory.id for memory in ana.memories(tags=["tea"])] == [second, first]
    assert [memory.id for memory in ana.memories(tags=["drinks", "tea"])] == [first]
    assert [memory.id for memory in ana.memories(session="s")] == [first]
    assert [memory.id for memory in ana.memories(channel="kitchen")] == [second]
    assert [memory.id for memory in ana.memories(kind="preference", text="BLACK")] == [second]
    assert [memory.id for memory in ana.memories(source="user")] == [first]
    assert [memory.id for memory in ana.memories(lifetime="long_term")] == [first]
    assert ana.memories(tier="account") == []
    for wrong in ("tier", "lifetime", "kind"):
        with pytest.raises(Rejected, match=wrong) as caught:
            ana.memories(**{wrong: "no such"})  # type: ignore[arg-type]
        assert caught.value.field == wrong


def test_a_changed_memory_is_found_by_its_new_words_alone(ana: Reverie, runtime: Runtime) -> None:
    """Given an indexed memory, when its content changes, then its old words find it no more once the pipeline ran."""
    kept = ana.remember("The meeting is on Monday", tags=["work"])
    drain(runtime)
    changed = ana.update_memory(kept.id, content="The standup moved to Thursday", importance=0.9, pinned=True)
    assert (changed.id, changed.tags, changed.lifetime, changed.importance) == (kept.id, ["work"], "long_term", 0.9)
    assert "standup" in changed.concept_tags
    assert list(ana.search_memories("meeting Monday", mode="keyword")) == []
    drain(runtime)
    assert [memory.id for memory in ana.search_memories("standup Thursday", mode="keyword")] == [kept.id]
    ends = ana.update_memory(kept.id, expires_at="2099-01-01T00:00:00Z")
    assert ends.expires_at == datetime(2099, 1, 1, tzinfo=UTC)
    assert ana.update_memory(kept.id, expires_at=None).expires_at is None


def test_facts_over_http(ana: Reverie, url: str, runtime: Runtime) -> None:
    """Given facts, then the newest value stands, is recalled alone, and the history has both until all is deleted."""
    ana.set_fact("profile", "home city", "Porto", source="user")
    ana.set_fact("profile", "home city", "Lisbon")
    ana.set_fact("a/b", "..", "dots and slashes")
    drain(runtime)
    assert ana.fact("profile", "home city").value == "Lisbon"
    assert [fact.value for fact in ana.fact_history("profile", "home city")] == ["Lisbon", "Porto"]
    assert [fact.key for fact in ana.facts("profile")] == ["home city"]
    assert ana.fact("a/b", "..").value == "dots and slashes"
    found = ana.search_memories("home city", mode="keyword")  # the vectors of this embedder have no meaning
    assert [memory.value for memory in found] == ["Lisbon"]
    assert list(ana.search_memories("Porto", mode="keyword")) == []
    with Reverie("kate", url=url) as kate, pytest.raises(NotFound, match="profile/home city"):
        kate.fact("profile", "home city")
    assert ana.forget_fact("profile", "home city")
    assert not ana.forget_fact("profile", "home city")
    with pytest.raises(NotFound):
        ana.fact_history("profile", "home city")


def test_notes_over_http(ana: Reverie, url: str, runtime: Runtime) -> None:
    """Given a note about a user, then it lies in that user's session, keeps its id and time when it changes, and
    no other agent can see, change or delete it."""
    note = ana.add_note("Likes window seats", tags=["Travel"], user="kate")
    assert note.note_id.startswith("note-")
    assert (note.session, note.tags) == ("memory:kate", ["travel"])
    with pytest.raises(NotFound):  # it is Kate's
        ana.update_note(note.note_id, "Likes aisle seats")
    changed = ana.update_note(note.note_id, "Likes aisle seats", user="kate")
    assert (changed.note_id, changed.created_at, changed.tags) == (note.note_id, note.created_at, ["travel"])
    assert changed.updated_at > note.updated_at
    assert [found.content for found in ana.notes(user="kate", tags=["travel"])] == ["Likes aisle seats"]
    assert ana.notes(user="otto") == []
    drain(runtime)
    assert [memory.note_id for memory in ana.search_memories("aisle seats", user="kate")] == [note.note_id]
    assert list(ana.search_memories("aisle seats")) == []
    with Reverie("kate", url=url) as kate:
        with pytest.raises(NotFound, match=note.note_id):
            kate.note(note.note_id)
        with pytest.raises(NotFound, match=note.note_id):
            kate.update_note(note.note_id, "mine now")
        assert not kate.delete_note(note.note_id)
    assert ana.delete_note(note.note_id, user="kate")
    assert list(ana.search_memories("aisle seats", user="kate")) == []


def test_the_same_post_twice_stores_once(ana: Reverie, url: str) -> None:
    """Given bodies sent twice, as a client does after a broken connection, then there is one of each."""
    with httpx2.Client(base_url=url, headers=HEADERS) as http:
        for _ in range(2):
            assert http.post("/v1/memories", json={"id": "m", "content": "Once"}).json() == {"id": "m", "ok": True}
            assert http.post("/v1/notes", json={"note_id": "n", "content": "Once"}).status_code == 200
            assert http.put("/v1/facts/a/b", json={"value": "Once"}).status_code == 200
        taken = http.post("/v1/memories", json={"id": "m", "content": "Something else"})
    assert (taken.status_code, taken.json()["field"]) == (409, "id")
    assert len(ana.memories()) == 3
    assert ana.memory_stats().memories == 3


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
            assert (await ana.memory(kept.id)).tags == ["music"]
            await asyncio.get_running_loop().run_in_executor(None, functools.partial(drain, runtime))
            assert len(await ana.search_memories("cello")) == 1
            assert (await ana.update_memory(kept.id, importance=0.7)).importance == 0.7
            assert (await ana.memory_stats()).memories == len(await ana.memories()) == 1
            assert (await ana.set_fact("a", "b", "c")).value == (await ana.fact("a", "b")).value == "c"
            assert len(await ana.facts()) == len(await ana.fact_history("a", "b")) == 1
            assert await ana.forget_fact("a", "b")
            note = await ana.add_note("a note")
            assert (await ana.update_note(note.note_id, "changed")).content == "changed"
            assert (await ana.note(note.note_id)) == (await ana.notes())[0]
            assert await ana.delete_note(note.note_id)
            assert (await memory_tool_async(ana, "forget", id=kept.id)) == {"ok": True}
            assert not await ana.forget(kept.id)
            with pytest.raises(NotFound):
                await ana.memory(kept.id)

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
    assert ana.memory(kept["id"]).metadata == {"context": "breakfast"}
    assert memory_tool(ana, "forget", id=kept["id"]) == {"ok": True}
    assert memory_tool(ana, "recall", query="oat milk") == {"ok": True, "results": []}


def test_many_setting_one_fact_at_once_leave_one_value(url: str) -> None:
    """Given eight threads that set one fact to different values, then one stands and all others are behind it."""
    with Reverie("ana", url=url) as ana:
        threads = [threading.Thread(target=ana.set_fact, args=("race", "winner", f"runner {n}")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        history = ana.fact_history("race", "winner")
        assert ana.fact("race", "winner") == history[0]
        assert [fact.superseded_at is None for fact in history] == [True] + [False] * 7
        with pytest.raises(Conflict, match="was replaced by"):
            ana.update_memory(history[1].id, importance=1.0)


def test_the_command_line_searches_and_collects(ana: Reverie, url: str, runtime: Runtime, tmp_path: Path) -> None:
    """Given a running server, then `reverie memory search` finds what it holds, and `memory gc` says in a dry run what
    it would remove, and removes it without one."""
    kept = ana.remember("Otto plays the cello")
    over = ana.remember("Only for a moment")
    with drain(runtime).writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.change(memories.get(over.id).row_id, now=runtime.now(), expires_at=runtime.now() - 1)
    settings = runtime.settings
    environment = {
        **os.environ,
        "REVERIE_PORT": str(urlsplit(url).port),
        "REVERIE_DATA": str(settings.data),
        "REVERIE_BROKER": settings.broker_url,
        "REVERIE_BROKER_PREFIX": settings.broker_prefix,
        "REVERIE_EMBEDDING_PROVIDER": "hash",
    }

    def reverie(*arguments: str) -> Any:
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "cli", "--agent", "ana", "memory", *arguments, "--json"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    assert [found["id"] for found in reverie("search", "cello", "--limit", "1")["results"]] == [kept.id]
    assert reverie("gc", "--dry-run")["expired"] == 1
    assert ana.memory(over.id)
    assert reverie("gc")["expired"] == 1
    assert [memory.id for memory in ana.memories()] == [kept.id]
