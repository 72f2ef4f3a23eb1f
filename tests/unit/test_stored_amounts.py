"""The counts of what a store holds: right in every transaction, whatever adds, changes or removes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from memory.memories.memories import forget
from memory.sessions import scratchpads
from reverie.calls import Resource
from storage.scheduling.records import NewReminder
from storage.stores import Store
from storage.trust.quotas import stored_amounts, wrong_amounts
from storage.verify import verify
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline
from support.scheduled import Scheduled


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def amounts(store: Store, tenant: str = "") -> Mapping[Resource, int]:
    with store.reading() as tx:
        assert wrong_amounts(tx.connection) == 0
        return stored_amounts(tx.connection, tenant)


def test_messages_and_files_count_until_they_are_forgotten(pipe: Pipeline) -> None:
    """Given messages, a repetition and a file, then each counts once with its bytes; forgotten, nothing is left."""
    first = pipe.say("naïve", {"role": "user", "content": "x", "metadata": {"a": 1}})
    pipe.ingest()
    assert dict(amounts(pipe.store)) == {"messages": 2, "bytes": 6 + 2 + 1 + 7, "memories": 0, "schedules": 0}
    pipe.say({"id": first[0], "content": "naïve"})
    file = pipe.hand_in("file:///a", "text" * 10).id
    pipe.ingest()
    assert amounts(pipe.store)["messages"] == 3
    pipe.hand_in("file:///a", "text" * 20)
    pipe.settle()
    assert amounts(pipe.store)["bytes"] == 16 + 80 + 2
    pipe.forget()
    pipe.forget_file(file)
    assert verify(pipe.store).wrong == []


def test_a_memory_that_is_replaced_counts_its_bytes_alone(pipe: Pipeline) -> None:
    """Given a fact with a new value, then one is current; both take up room, until the fact is forgotten."""
    ana = Knowing(pipe.stores, workspace=WORKSPACE)
    ana.set_fact("home", "city", "Porto")
    once = amounts(pipe.store)
    ana.set_fact("home", "city", "Lisbon")
    twice = amounts(pipe.store)
    assert (once["memories"], twice["memories"]) == (1, 1)
    assert twice["bytes"] > once["bytes"] > 0
    kept = ana.remember("Kate takes oat milk")
    ana.update(kept.id, content="Kate takes almond milk", metadata={"seen": True})
    assert amounts(pipe.store)["memories"] == 2
    forget(ana.memories, kept.id)
    assert dict(amounts(pipe.store)) == dict(twice)


def test_memories_of_the_account_count_for_their_tenant(pipe: Pipeline) -> None:
    """Given workspaces of two tenants, then each one's memories of the account count apart from the other's."""
    pipe.stores.tenants().set("acme", "acme")
    Knowing(pipe.stores, workspace="acme").remember("of acme", tier="account", kind="preference")
    Knowing(pipe.stores, workspace="home").remember("local", tier="account", kind="preference")
    Knowing(pipe.stores, workspace="home").remember("and more", tier="account", kind="preference")
    account = pipe.stores.account_store()
    assert [amounts(account, tenant)["memories"] for tenant in ("acme", "", "none")] == [1, 2, 0]


def test_scratchpads_schedules_and_reminders_count(tmp_path: Path) -> None:
    """Given a schedule, a reminder and scratchpads, then a delivered reminder is no longer one to deliver."""
    time = Scheduled(tmp_path / "data")
    store = time.store
    time.hourly()
    with store.writing() as tx:
        tx.for_agent("ana").reminders.add(
            NewReminder("r", None, "s", None, "kate", "call", "auto", time.now), now=time.now
        )
    assert amounts(store)["schedules"] == 2
    scratchpads.write_items(store, agent="ana", session="s", items=["pack"], now=time.now)
    held = amounts(store)["bytes"]
    scratchpads.write_items(store, agent="ana", session="s", items=["pack", "book"], now=time.now)
    assert amounts(store)["bytes"] > held
    with store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE reminders SET delivered_at = 1")
    assert amounts(store)["schedules"] == 1
    time.close()


def test_a_transaction_that_fails_counts_nothing(pipe: Pipeline) -> None:
    """Given a worker that dies before its commit, then nothing of it is counted."""
    pipe.say("hello")
    with suppress(RuntimeError), pipe.store.writing() as tx:
        ensured = tx.for_agent("ana").sessions.ensure("s", now=1)
        tx.connection.exec_driver_sql(
            "INSERT INTO scratchpad_lists (session_row, agent_id, items, updated_at) VALUES (?, 'ana', '[]', 1)",
            (ensured.row_id,),
        )
        assert stored_amounts(tx.connection)["bytes"] == 2
        raise RuntimeError("killed")
    assert amounts(pipe.store)["bytes"] == 0
    pipe.ingest()
    assert amounts(pipe.store)["messages"] == 1


def test_wrong_counts_are_found(pipe: Pipeline) -> None:
    """Given a count that somebody changed, then the verification says so."""
    pipe.say("hello")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE stored_amounts SET messages = messages + 1")
    assert verify(pipe.store).wrong == ["counts of what is stored that are wrong: 2"]
