"""Memories in recall, context, search and recall events through the public faces: over HTTP and on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import pytest

from memory.recall import record_recalls
from reverie import AsyncReverie, Reverie
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over two workspaces of ana's: a message and memories in one, nothing in the other, one for both."""
    with running_server(runtime) as address:
        with Reverie("ana", url=address) as ana, Reverie("kate", url=address) as kate:
            ana.ingest("s", [{"id": "m", "role": "user", "content": "The boat lies in the harbour"}], channel="trips")
            drain(runtime)
            ana.remember("Prefers the boat to the bus", tier="account", kind="preference", id="everywhere")
            ana.remember("The boat is called Moss", id="here", tags=["boat"])
            ana.remember("A boat for two", id="now", tier="conversation", session="s")
            ana.remember("The harbour has a boat", id="copy", source_message="m", session="s")
            kate.remember("Prefers no boat at all", tier="account", kind="preference", id="hers")
        drain(runtime)
        drain(runtime, ACCOUNT_STORE)
        yield address


def test_memories_are_recalled_beside_what_was_said(ana: Reverie, url: str) -> None:
    """Given memories in the workspace and the account, then one recall finds both, and kinds choose among them."""
    found = ana.recall("boat", limit=20)
    assert {(result.kind, result.id) for result in found} == {
        ("message", "m"),
        ("memory", "everywhere"),
        ("memory", "here"),
        ("memory", "now"),
    }
    tiers = {result.id: result.tier for result in found}
    assert tiers == {"m": None, "everywhere": "account", "here": "workspace", "now": "conversation"}
    assert [result.id for result in ana.recall("boat", kinds=["message"])] == ["m"]
    memories = {result.id: result for result in ana.recall("boat", kinds=["memory"])}
    assert set(memories) == {"everywhere", "here", "now", "copy"}
    assert memories["copy"].source_message == "m"
    assert {result.id for result in ana.recall("boat", session="s")} == {"m", "now"}
    assert {result.id for result in ana.recall("boat", scope="workspace")} == {"m", "now", "here"}
    assert {result.id for result in ana.recall("boat", session="s", scope="account", tags=["boat"])} == {"here"}

    async def later() -> list[str]:
        async with AsyncReverie("ana", url=url) as client:
            return [result.id for result in await client.recall("boat", kinds=["memory"], tags=["boat"])]

    assert asyncio.run(later()) == ["here"]


def test_an_unknown_kind_is_named(ana: Reverie, url: str) -> None:
    with pytest.raises(Rejected, match="kinds"):
        ana.recall("boat", kinds=["dream"])  # type: ignore[list-item]
    answer = httpx2.post(
        f"{url}/v1/recall", json={"query": "boat", "kinds": "memory"}, headers={"X-Reverie-Agent": "a"}
    )
    assert answer.status_code == 422
    assert answer.json()["field"] == "kinds"


def test_a_new_workspace_knows_what_holds_in_every_one(url: str) -> None:
    """Given a workspace in which nothing was stored, then the account's memories are found, and nobody else's."""
    with Reverie("ana", url=url, workspace="new") as ana, Reverie("bob", url=url, workspace="new") as bob:
        found = ana.recall("boat")
        assert [result.id for result in found] == ["everywhere"]
        assert list(ana.recall("boat", scope="workspace")) == []
        with pytest.raises(NotFound):
            ana.recall("boat", session="s", scope="account")
        assert list(bob.recall("boat")) == []


def test_a_context_tells_memories_of_every_tier(ana: Reverie) -> None:
    """Given a session, then its context tells what holds in it, in the workspace and everywhere, each with its kind."""
    context = ana.context("s", "which boat does he prefer")
    tiers = {memory.id: memory.tier for memory in context.memories}
    assert tiers == {"now": "conversation", "here": "workspace", "everywhere": "account"}
    assert "preference: Prefers the boat to the bus" in context.text
    assert context.text.index("### From this conversation") < context.text.index("### From every workspace")
    assert "The harbour has a boat" not in context.text  # its message is among the recent turns


def test_what_was_recalled_counts_on_the_memory_in_its_own_store(ana: Reverie, runtime: Runtime) -> None:
    """Given a recall over both stores, when it is recorded, then one recall shows both, and each memory was counted."""
    ana.recall("boat", limit=20)
    runtime.recall_buffer.flush()
    for store in ("default", ACCOUNT_STORE):
        record_recalls(runtime.recall_log, runtime.stores, workspace=store)
    events = ana.memories.recall_events(explain=True)
    assert {(event.kind, event.id, event.account) for event in events} == {
        ("message", "m", False),
        ("memory", "here", False),
        ("memory", "now", False),
        ("memory", "copy", False),
        ("memory", "everywhere", True),
    }
    assert len({event.recall for event in events}) == 1
    assert [event.score for event in events] == sorted((event.score or 0.0 for event in events), reverse=True)
    assert ana.memories.recall_events(limit=2, offset=3) == ana.memories.recall_events()[3:5]
    for name in ("here", "copy", "everywhere"):
        assert ana.memories.get(name).access_count == 1
    with Reverie("ana", url=str(ana.connection.config.url), workspace="new") as elsewhere:
        assert [event.id for event in elsewhere.memories.recall_events()] == ["everywhere"]
    with Reverie("kate", url=str(ana.connection.config.url)) as kate:
        assert kate.memories.recall_events() == []


def test_a_context_counts_what_it_tells_in_both_stores(ana: Reverie, runtime: Runtime) -> None:
    ana.context("s", "which boat does he prefer")
    runtime.recall_buffer.flush()
    for store in ("default", ACCOUNT_STORE):
        record_recalls(runtime.recall_log, runtime.stores, workspace=store)
    assert ana.memories.get("everywhere").access_count == 1
    assert ana.memories.get("here").access_count == 1
