"""The table of memories: what is unique in it, what goes with what, and what stands again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import list_memories
from reverie.errors import NotFound
from reverie.memories.calls import ListMemories
from storage.memories.memories import EVERY_ACTIVE, Memories
from storage.memories.records import MemoryFilter, MemoryRecord, NewMemory
from storage.transaction import AgentRepositories
from storage.verify import verify
from storage.viewer import Viewer
from support.pipeline import WORKSPACE, Pipeline
from support.work import counted_sql

NOW = 1_750_000_000_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with two sessions of ana's."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("hello", session="a")
    pipe.say("hello again", session="b")
    pipe.settle()
    yield pipe
    pipe.close()


def remember(rows: AgentRepositories, name: str, **more: object) -> MemoryRecord:
    fields = {"content": f"about {name}", "created_at": NOW, **more}
    return rows.memories.add(NewMemory(id=name, **fields), now=NOW)  # type: ignore[arg-type]  # any field


def ids(memories: Memories, wanted: MemoryFilter = EVERY_ACTIVE) -> list[str]:
    return [memory.id for memory in memories.page(wanted)]


def test_an_id_that_is_there_stays_as_it_is(pipe: Pipeline) -> None:
    """Given a memory, when one with its id is added again, then the first is returned unchanged."""
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        first = remember(rows, "m", tags=("one",))
        assert remember(rows, "m", content="something else") == first
        assert ids(rows.memories) == ["m"]


def test_another_agent_has_none_of_it(pipe: Pipeline) -> None:
    """Given a memory of ana's, when bob asks by id, by note, by fact or for all, then he has none."""
    with pipe.store.writing() as tx:
        remember(tx.for_agent("ana"), "m", note_id="n", category="c", key="k", value="v")
        bob = tx.for_agent("bob").memories
        assert (bob.find("m"), bob.by_note("n"), bob.fact("c", "k"), bob.page()) == (None, None, None, [])
        with pytest.raises(NotFound, match="bob has no memory 'm'"):
            bob.get("m")


def test_a_session_that_does_not_exist_is_an_error(pipe: Pipeline) -> None:
    """Given no such session, when a memory names it, then nothing is stored."""
    with pytest.raises(NotFound, match="no session 'nowhere'"), pipe.store.writing() as tx:
        remember(tx.for_agent("ana"), "m", session="nowhere")
    assert pipe.count("memories") == 0


@pytest.mark.sqlite("counts the steps of its statements")
def test_a_page_of_a_list_reads_what_it_shows(pipe: Pipeline) -> None:
    """Given memories in both stores, when there are ten times as many, then a page of them is the same work."""
    memories = AgentMemories(pipe.stores, WORKSPACE, "ana", Viewer())
    with pipe.stores.account_store().writing() as tx:
        remember(tx.for_agent("ana"), "of-the-account", tier="account", kind="preference")
    steps = []
    for numbers in (range(200), range(200, 2_000)):
        with pipe.store.writing() as tx:
            for number in numbers:
                remember(tx.for_agent("ana"), f"m{number}", created_at=NOW + number)
        with counted_sql(pipe.store.database.engine) as work:
            found = list_memories(memories, ListMemories(limit=10), now=NOW)
        assert [memory.id for memory in found] == [f"m{number}" for number in range(numbers[-1], numbers[-1] - 10, -1)]
        steps.append(work.hundreds_of_steps)
    assert steps[1] < 2 * steps[0]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (MemoryFilter(), ["new", "old"]),
        (MemoryFilter(active=None), ["new", "old", "older"]),
        (MemoryFilter(active=False), ["older"]),
        (MemoryFilter(tiers=("channel",)), ["new"]),
        (MemoryFilter(channel="garden"), ["new"]),
        (MemoryFilter(session="a"), ["old"]),
        (MemoryFilter(tags=("x", "y")), ["old"]),
        (MemoryFilter(tags=("x",)), ["new", "old"]),
        (MemoryFilter(text="ABOUT NEW"), ["new"]),
        (MemoryFilter(owner="kate"), ["old"]),
        (MemoryFilter(facts=True), ["old"]),
        (MemoryFilter(notes=False, kinds=("event",)), ["new", "old"]),
    ],
)
def test_a_filter_takes_only_what_fits_all_of_it(pipe: Pipeline, wanted: MemoryFilter, found: list[str]) -> None:
    """Given three memories, one of whose place was taken, when filtered, then those that fit come, the newest first."""
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        older = remember(rows, "older", created_at=NOW - 2)
        old = remember(
            rows, "old", created_at=NOW - 1, session="a", tags=("x", "y"), owner_user_id="kate",
            category="c", key="k", value="v",
        )  # fmt: skip
        remember(rows, "new", tier="channel", channel="garden", tags=("x",), expires_at=NOW + 5)
        rows.memories.supersede(older.row_id, by=old.row_id, now=NOW)
        assert ids(rows.memories, wanted) == found
        assert rows.memories.any(wanted)
        assert not rows.memories.any(replace(wanted, text="about nothing of it"))
        assert sorted(memory.id for memory in rows.memories.iterate(wanted)) == sorted(found)


def test_a_rewritten_memory_is_found_by_its_new_words_alone(pipe: Pipeline) -> None:
    """Given a memory that is indexed, when it is rewritten and the pipeline ran, then the old words find nothing."""
    with pipe.store.writing() as tx:
        memory = remember(tx.for_agent("ana"), "m", content="walnuts")
    pipe.settle()
    assert pipe.found("walnuts") == ["walnuts"]
    with pipe.store.writing() as tx:
        tx.for_agent("ana").memories.rewrite(memory.row_id, "hazelnuts", now=NOW + 1)
    assert pipe.found("walnuts") == []
    pipe.settle()
    assert pipe.found("hazelnuts") == ["hazelnuts"]
    assert verify(pipe.store).wrong == []


def test_a_superseded_memory_is_kept_and_found_no_more(pipe: Pipeline) -> None:
    """Given two memories, when one takes the other's place, then that one has no chunks and is still there."""
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        old, new = remember(rows, "old", content="walnuts"), remember(rows, "new", content="walnuts and figs")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.for_agent("ana").memories.supersede(old.row_id, by=new.row_id, now=NOW + 1)
    assert pipe.found("walnuts") == ["walnuts and figs"]
    assert verify(pipe.store).wrong == []
    with pipe.store.reading() as tx:
        kept = tx.for_agent("ana").memories.get("old")
    assert (kept.active, kept.superseded_by, kept.superseded_at) == (False, "new", NOW + 1)


def test_deleting_a_memory_takes_those_whose_place_it_took(pipe: Pipeline) -> None:
    """Given a chain of three, when the last is deleted, then nothing of the three is left."""
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        first, second, third = (remember(rows, name) for name in ("first", "second", "third"))
        rows.memories.supersede(first.row_id, by=second.row_id, now=NOW)
        rows.memories.supersede(second.row_id, by=third.row_id, now=NOW)
        assert sorted(rows.memories.ids_with_superseded([third.row_id])) == ["first", "second", "third"]
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.for_agent("ana").memories.delete([third.row_id])
    assert pipe.count("memories") == 0
    assert pipe.count("chunks", "memory_row IS NOT NULL") == 0
    assert verify(pipe.store).wrong == []


def test_forgetting_a_session_takes_its_memories_and_lets_those_of_others_stand_again(pipe: Pipeline) -> None:
    """Given facts of two sessions that took each other's place, when one session is forgotten, then the others' stand.

    a1 gave way to b, b to a2: without session b, a1 has a2 as its successor; without a as well, nothing is left.
    """
    fact = {"category": "home", "key": "city"}
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        first = remember(rows, "a1", session="a", value="Faro", **fact)
        rows.memories.supersede(first.row_id, by=first.row_id, now=NOW)  # out of the way, as an upsert does
        between = remember(rows, "b", session="b", value="Braga", **fact)
        rows.memories.supersede(first.row_id, by=between.row_id, now=NOW)
        rows.memories.supersede(between.row_id, by=between.row_id, now=NOW)
        last = remember(rows, "a2", session="a", value="Porto", **fact)
        rows.memories.supersede(between.row_id, by=last.row_id, now=NOW)
    assert pipe.forget("b")
    with pipe.store.reading() as tx:
        memories = tx.for_agent("ana").memories
        assert {m.id: m.superseded_by for m in memories.page(MemoryFilter(active=None))} == {"a1": "a2", "a2": None}
    assert pipe.forget("a")
    assert pipe.count("memories") == 0


def test_what_a_forgotten_memory_had_replaced_is_searchable_again(pipe: Pipeline) -> None:
    """Given a memory of session a that one of session b replaced, when b is forgotten, then it is found again."""
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        old, new = remember(rows, "old", content="figs", session="a"), remember(rows, "new", session="b")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.for_agent("ana").memories.supersede(old.row_id, by=new.row_id, now=NOW)
    assert pipe.found("figs") == []
    pipe.forget("b")
    pipe.settle()
    assert pipe.found("figs") == ["figs"]
    assert verify(pipe.store).wrong == []


def test_the_account_is_a_store_of_its_own(pipe: Pipeline) -> None:
    """Given a memory in the account's store, when a workspace is deleted, then it is still there, and indexed."""
    account = pipe.stores.account_store()
    with account.writing() as tx:
        remember(tx.for_agent("ana"), "m", tier="account", kind="preference")
    assert pipe.stores.all_names() == ["@account", "ws"]
    assert pipe.stores.names() == ["ws"]
    assert pipe.stores.delete_workspace("ws")
    with account.reading() as tx:
        assert ids(tx.for_agent("ana").memories) == ["m"]
    assert verify(account).wrong == []
