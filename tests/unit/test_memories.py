"""Memories remembered, changed and forgotten by hand: what is accepted, where it lies, and what is left of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import text

from memory.lifecycle.curation import undo_entry
from memory.memories.agent_memories import StoredMemory, wait_until_searchable
from memory.memories.memories import forget, list_memories, memory_stats, read_memories, read_memory
from memory.pipeline.chunking import cut
from reverie.clock import now_micros
from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import Conflict, NotFound, Rejected, WaitTimeout
from reverie.memories import types as memory_types
from reverie.memories.calls import ListMemories
from storage.curation import EntryDraft
from storage.memories import records as memory_records
from storage.memories.records import MemoryRecord, NewMemory
from storage.pipeline.records import NewChunk, SourceText
from storage.stores import Stores
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline

HOUR = 3_600_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline over an empty data folder."""
    made = Pipeline(tmp_path)
    yield made
    made.close()


@pytest.fixture
def stores(pipe: Pipeline) -> Stores:
    """Its stores."""
    return pipe.stores


@pytest.fixture
def ana(stores: Stores) -> Knowing:
    """What ana knows."""
    return Knowing(stores, workspace=WORKSPACE)


def test_both_sides_know_the_same_tiers_and_lifetimes() -> None:
    """Given the client's types and the store's, then they name the same things."""
    assert get_args(memory_types.Tier) == memory_records.TIERS
    assert get_args(memory_types.Lifetime) == memory_records.LIFETIMES


@pytest.mark.parametrize(
    ("raw", "field", "expected_error"),
    [
        ({"content": ""}, "content", "content is blank"),
        ({"content": " \n\t"}, "content", "content is blank"),
        ({"content": "x" * 65_537}, "content", "65,537 bytes; the limit is 65,536"),
        ({"content": "a\x00b"}, "content", "NUL"),
        ({"content": "\ud800"}, "content", "lone surrogate"),
        ({"content": 3}, "content", "content must be a text, not a whole number"),
        ({}, "content", "content is required"),
        ({"importance": -0.01}, "importance", r"must be from 0 to 1"),
        ({"importance": 1.5}, "importance", r"must be from 0 to 1"),
        ({"importance": float("nan")}, "importance", r"must be from 0 to 1"),
        ({"importance": float("inf")}, "importance", r"must be from 0 to 1"),
        ({"importance": "high"}, "importance", "importance must be a number from 0 to 1, not a text"),
        ({"confidence": 2}, "confidence", r"must be from 0 to 1"),
        ({"tier": "galaxy"}, "tier", "conversation, channel, workspace, account"),
        ({"lifetime": "ages"}, "lifetime", "long_term, short_term, conversation"),
        ({"kind": "rumour"}, "kind", "fact, preference, procedure, event, task, note"),
        ({"source": " "}, "source", "not blank"),
        ({"source": "s" * 65}, "source", "the limit is 64"),
        ({"tags": [f"t{n}" for n in range(17)]}, "tags", "17 tags; the limit is 16"),
        ({"tags": ["t" * 65]}, "tags", "the limit is 64"),
        ({"tier": "account"}, "tier", "only preferences, procedures and instructions, and this is a fact"),
        ({"tier": "account", "kind": "preference", "session": "s"}, "session", "belongs to no session"),
        ({"tier": "account", "kind": "preference", "channel": "c"}, "channel", "belongs to no channel"),
        ({"tier": "channel"}, "channel", "needs a channel, or a session"),
        ({"tier": "conversation"}, "session", "needs a session"),
        ({"tier": "conversation", "session": "s", "lifetime": "long_term"}, "lifetime", "ends with its session"),
        ({"tier": "conversation", "session": "s", "pinned": True}, "pinned", "choose a wider tier"),
        ({"lifetime": "conversation"}, "lifetime", "requires the conversation tier"),
        ({"pinned": True, "lifetime": "short_term"}, "lifetime", "a pinned memory is long_term"),
        ({"expires_at": datetime(2099, 1, 1)}, "expires_at", "needs a time zone"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at", "is in the past"),
        ({"expires_at": "tomorrow"}, "expires_at", "as in 2027-05-01T09:30:00Z"),
        ({"session": "a\nb"}, "session", "control character"),
        ({"channel": ""}, "channel", "not blank"),
        ({"subject": "x" * 257}, "subject", "the limit is 256"),
        ({"id": "stats"}, "id", "choose another"),
        ({"id": "pending"}, "id", "choose another"),
        ({"id": "review"}, "id", "choose another"),
        ({"id": ""}, "id", "not blank"),
        ({"metadata": {"a": "x" * 70_000}}, "metadata", "the limit is 65,536"),
        ({"score": 1}, "score", "unknown field"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    ana: Knowing, raw: dict[str, Any], field: str, expected_error: str
) -> None:
    """Given something at fault, then the error names the field and says what to do, and nothing is stored."""
    given = raw if "content" in raw or not raw else {"content": "x", **raw}
    with pytest.raises(Rejected, match=expected_error) as caught:
        ana.keep(given)
    assert caught.value.field == field
    assert memory_stats(ana.memories).memories == 0


def test_what_is_not_given_is_decided(ana: Knowing) -> None:
    """Given nothing but content, then tags, lifetime and concept tags are what the rules say."""
    plain = ana.remember("The cello needs new strings", tags=[" Music", "music ", ""])
    assert (plain.tags, plain.lifetime, plain.importance, plain.source) == (("music",), "short_term", 0.5, "agent")
    assert "cello" in plain.concept_tags
    assert plain.accessed_at == plain.updated_at == plain.created_at
    assert ana.remember("by a person", source="user").lifetime == "long_term"
    assert ana.remember("for good", pinned=True).lifetime == "long_term"
    assert ana.remember("just now", tier="conversation", session="s").lifetime == "conversation"
    ends = datetime.now(UTC) + timedelta(hours=1)
    assert ana.remember("for an hour", expires_at=ends).expires_at is not None


def test_the_same_id_is_stored_once(ana: Knowing) -> None:
    """Given a memory that is sent again, then it stays as it is; other content under its id is a conflict."""
    first = ana.remember("once", id="m", importance=0.9)
    assert ana.remember("once", id="m", importance=0.1) == first
    with pytest.raises(Conflict, match="another memory with the id m"):
        ana.remember("twice", id="m")
    with pytest.raises(Conflict, match="another memory with the id m"):
        ana.remember("everywhere", id="m", tier="account", kind="preference")
    assert memory_stats(ana.memories).memories == 1


def test_one_memory_from_many_threads(ana: Knowing) -> None:
    """Given the same memory from eight threads at once, then it is stored once and all hear of its id."""
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(ana.remember("once", id="m").id)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["m"] * 8
    assert memory_stats(ana.memories).memories == 1


def test_a_session_is_made_by_what_is_remembered_of_it(ana: Knowing, pipe: Pipeline) -> None:
    """Given a session without a message yet, when something is remembered of it, then it exists, and messages that
    come later lie in it."""
    ana.remember("early", session="s", tier="conversation")
    pipe.say("hello")
    pipe.ingest()
    assert pipe.contents() == ["hello"]
    assert [m.content for m in list_memories(ana.memories, ListMemories(session="s", limit=9), now=now_micros())] == [
        "early"
    ]


def test_the_channel_comes_from_the_session(ana: Knowing, pipe: Pipeline) -> None:
    """Given a session in a channel, when something is remembered in the channel tier, then it has that channel."""
    pipe.say("hello", session="s", channel="kitchen")
    pipe.ingest()
    assert ana.remember("x", tier="channel", session="s").channel == "kitchen"
    assert ana.remember("y", tier="channel", session="s", channel="attic").channel == "attic"
    assert ana.remember("z", session="s").channel is None
    assert ana.remember("in no channel", tier="channel", session="other").channel == DEFAULT_CHANNEL


def test_a_conversation_that_is_over_takes_nothing_more(ana: Knowing, stores: Stores) -> None:
    """Given an archived session, then nothing is remembered for the conversation; an idle one goes on."""
    for session, status in (("over", "archived"), ("resting", "idle")):
        ana.remember("before", session=session)
        with stores.workspace(WORKSPACE).writing() as tx:
            tx.connection.execute(
                text("UPDATE sessions SET status = :status WHERE id = :id"), {"status": status, "id": session}
            )
    with pytest.raises(Conflict, match="'over' is archived"):
        ana.remember("x", tier="conversation", session="over")
    ana.remember("x", tier="conversation", session="resting")
    with stores.workspace(WORKSPACE).reading() as tx:
        assert tx.for_agent("ana").sessions.get("resting").status == "active"


def test_a_newer_memory_supersedes_older_ones_of_its_subject(ana: Knowing) -> None:
    """Given a subject, then the newest stands; other owners, tiers and subjects are left alone."""
    older = ana.remember("The car is red", subject="car", owner_user_id="kate")
    other_owner = ana.remember("The car is green", subject="car", owner_user_id="otto")
    other = ana.remember("The bike is red", subject="bike", owner_user_id="kate")
    newest = ana.remember("The car is blue", subject="car", owner_user_id="kate")
    assert ana.record(older.id).superseded_by == newest.id
    assert all(ana.record(memory.id).active for memory in (other_owner, other, newest))
    assert [m.id for m in read_memories(ana.memories, [older.id, newest.id])] == [newest.id]
    assert read_memory(ana.memories, older.id).superseded_by == newest.id


def test_agents_know_nothing_of_each_other(ana: Knowing, stores: Stores) -> None:
    """Given memories of ana's in both stores, then kate can neither read, change, list, count nor forget them, and
    may use the same ids."""
    kate = Knowing(stores, agent="kate", workspace=WORKSPACE)
    ids = [ana.remember("a secret").id, ana.remember("a way", tier="account", kind="procedure").id]
    for memory_id in ids:
        with pytest.raises(NotFound, match="agent kate has no memory"):
            read_memory(kate.memories, memory_id)
        with pytest.raises(NotFound):
            kate.update(memory_id, importance=1.0)
        assert not forget(kate.memories, memory_id)
    assert list_memories(kate.memories, ListMemories(superseded=True, limit=9), now=now_micros()) == []
    assert memory_stats(kate.memories).memories == 0
    assert kate.remember("hers", id=ids[0]).content == "hers"
    assert ana.record(ids[0]).content == "a secret"


def test_deleting_a_workspace_leaves_the_account(ana: Knowing, stores: Stores) -> None:
    """Given memories in both stores, when the workspace is deleted, then those of the account tier are left."""
    ana.remember("gone")
    kept = ana.remember("stays", tier="account", kind="preference")
    stores.delete_workspace(WORKSPACE)
    assert [m.id for m in list_memories(ana.memories, ListMemories(limit=9), now=now_micros())] == [kept.id]
    elsewhere = Knowing(stores, workspace="elsewhere")
    assert elsewhere.update(kept.id, importance=0.9).importance == 0.9
    assert WORKSPACE not in stores.names()
    assert "elsewhere" not in stores.names(), "reading and changing an account memory makes no workspace"


def test_a_change_keeps_what_it_does_not_name(ana: Knowing) -> None:
    """Given a memory, when one thing is changed, then the rest stays, and only its content indexes it anew."""
    before = ana.remember("Tea at five", tags=["tea"], metadata={"a": 1}, importance=0.3)
    after = ana.update(before.id, importance=0.8)
    assert (after.content, after.tags, after.metadata) == (before.content, before.tags, before.metadata)
    assert (after.created_at, after.lifetime, after.importance) == (before.created_at, "short_term", 0.8)
    assert after.updated_at > before.updated_at
    assert ana.update(before.id, pinned=True).lifetime == "long_term"
    unpinned = ana.update(before.id, pinned=False)
    assert (unpinned.pinned, unpinned.lifetime) == (False, "long_term")
    assert ana.update(before.id, tags=["A", "a "]).tags == ("a",)
    assert ana.update(before.id, metadata={}).metadata == {}


@pytest.mark.parametrize(
    ("changes", "field", "expected_error"),
    [
        ({}, "", "nothing to change"),
        ({"content": " "}, "content", "blank"),
        ({"importance": 3}, "importance", "must be from"),
        ({"tier": "account"}, "tier", "another database than account: remember it again"),
        ({"tier": "conversation"}, "session", "needs a session"),
        ({"tier": "channel"}, "channel", "needs a channel"),
        ({"lifetime": "conversation"}, "lifetime", "requires the conversation tier"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at", "is in the past"),
        ({"tags": ["t" * 65]}, "tags", "64"),
        ({"content": None}, "content", "content must be a text, not null"),
        ({"access_count": 3}, "access_count", "unknown field"),
    ],
)
def test_a_change_at_fault_changes_nothing(
    ana: Knowing, changes: dict[str, Any], field: str, expected_error: str
) -> None:
    """Given a change that cannot be, then the error names the field, and the memory is as it was."""
    before = ana.remember("as it was")
    with pytest.raises(Rejected, match=expected_error) as caught:
        ana.update(before.id, **changes)
    assert caught.value.field == field
    assert ana.record(before.id) == before


def test_an_account_memory_stays_what_the_account_holds(ana: Knowing) -> None:
    """Given a memory of the account tier, then neither its kind nor its tier can become what the account refuses."""
    kept = ana.remember("Be brief", tier="account", kind="preference")
    assert ana.update(kept.id, kind="procedure").kind == "procedure"
    with pytest.raises(Rejected, match="only preferences, procedures and instructions"):
        ana.update(kept.id, kind="event")
    with pytest.raises(Rejected, match="another database than workspace"):
        ana.update(kept.id, tier="workspace")


def test_between_tiers_of_one_workspace_a_memory_moves(ana: Knowing, pipe: Pipeline) -> None:
    """Given a conversation's memory, when it is widened, then it lives on as a short-term one and is indexed anew in
    its new place, and back again."""
    kept = ana.remember("a lighthouse", tier="conversation", session="s")
    pipe.settle()
    assert pipe.count("chunks", "memory_row IS NOT NULL AND session_row IS NOT NULL") == 1
    assert ana.update(kept.id, tier="workspace").lifetime == "short_term"
    pipe.settle()
    assert pipe.count("chunks", "memory_row IS NOT NULL AND session_row IS NULL") == 1
    assert ana.update(kept.id, tier="conversation").lifetime == "conversation"
    assert ana.update(kept.id, tier="channel", channel="c").channel == "c"


def test_what_was_replaced_is_changed_no_more(ana: Knowing) -> None:
    """Given a superseded memory, when it is changed, then the error names the one that took its place."""
    older, newer = ana.remember("old", subject="s"), ana.remember("new", subject="s")
    with pytest.raises(Conflict, match=newer.id):
        ana.update(older.id, importance=1.0)


def test_forgetting_leaves_nothing(ana: Knowing, pipe: Pipeline) -> None:
    """Given an indexed memory that had replaced another and was curated, when it is forgotten, then neither rows nor
    chunks, vectors, words nor what the curation log held of them are left, and a second time there is nothing."""
    ana.remember("an old violet umbrella", id="old", subject="u")
    kept = ana.remember("a violet umbrella", id="new", subject="u", tags=["violet"])
    pipe.settle()
    with (
        pipe.store.writing() as tx,
        tx.curation.entry(EntryDraft("test", ["new"]), job="test", agent="ana", action="promote", at=now_micros()),
    ):
        tx.for_agent("ana").memories.change(kept.row_id, now=now_micros(), lifetime="long_term")
    assert pipe.count("curation_changes") > 0
    assert pipe.found("violet umbrella") == ["a violet umbrella"]
    assert forget(ana.memories, "new")
    assert not forget(ana.memories, "new")
    assert not forget(ana.memories, "old")
    assert pipe.found("violet umbrella") == []
    for table in ("memories", "chunks", "chunks_vec", "chunk_tags", "forward_index", "claims"):
        assert pipe.count(table) == 0, table
    for table in ("curation_log", "curation_items", "curation_changes"):
        assert pipe.count(table) == 0, table


def test_forgetting_what_a_job_has_removed_leaves_no_way_back(ana: Knowing, pipe: Pipeline) -> None:
    """Given memories that a job has removed, when one is forgotten by its id, then the log holds it no more, and a
    second time there is nothing; that of another agent's stays, as does the other's."""
    kate = Knowing(pipe.stores, agent="kate", workspace=WORKSPACE)
    for who, name in ((ana, "a"), (ana, "b"), (kate, "a")):
        removed_by_a_job(pipe, who.remember(f"{name} violet umbrella", id=name))

    assert forget(ana.memories, "a")
    assert not forget(ana.memories, "a")

    with pipe.store.reading() as tx:
        left = [(entry.agent, entry.memories) for entry in tx.curation.page()]
    assert left == [("kate", ("a",)), ("ana", ("b",))]
    assert pipe.count("curation_changes", "before LIKE '%a violet umbrella%'") == 1


def test_what_is_forgotten_after_its_making_was_undone_is_still_known_as_undone(ana: Knowing, pipe: Pipeline) -> None:
    """Given a memory that a job made and a person took away, when it is forgotten, then its text is gone, and that
    the job must not make it again is not."""
    with (
        pipe.store.writing() as tx,
        tx.curation.entry(EntryDraft("test"), job="test", agent="ana", action="promote", at=now_micros()) as entry_id,
    ):
        made = NewMemory(id="made", content="a violet umbrella", created_at=now_micros())
        tx.for_agent("ana").memories.add(made, now=now_micros())
    undo_entry(pipe.store, agent="ana", entry=entry_id, now=now_micros())

    assert forget(ana.memories, "made")
    assert not forget(ana.memories, "made")

    assert pipe.count("curation_changes") == 0
    with pipe.store.reading() as tx:
        assert tx.curation.undone("promote") == {("ana", "made")}


def test_forgetting_one_leaves_the_log_of_others(ana: Knowing, pipe: Pipeline) -> None:
    """Given curated memories, when one is forgotten, then what was logged of the others stays."""
    for name in ("a", "b"):
        memory = ana.remember(name, id=name)
        with (
            pipe.store.writing() as tx,
            tx.curation.entry(EntryDraft("test", [name]), job="test", agent="ana", action="promote", at=now_micros()),
        ):
            tx.for_agent("ana").memories.change(memory.row_id, now=now_micros(), lifetime="long_term")
    forget(ana.memories, "a")
    with pipe.store.reading() as tx:
        assert [entry.memories for entry in tx.curation.page()] == [("b",)]


def test_the_counts(ana: Knowing) -> None:
    """Given memories of all sorts in both stores, then the counts name them, and those replaced apart."""
    first = ana.remember("one", at=now_micros() - HOUR)
    ana.remember("two", source="user", kind="event")
    ana.remember("three", tier="account", kind="preference")
    ana.set_fact("a", "b", "1")
    ana.set_fact("a", "b", "2")
    ana.note("a note")
    stats = memory_stats(ana.memories)
    assert (stats.memories, stats.facts, stats.notes, stats.superseded, stats.promoted) == (5, 1, 1, 1, 0)
    assert stats.by_tier == {"account": 1, "workspace": 4}
    assert stats.by_lifetime == {"long_term": 3, "short_term": 2}
    assert stats.by_kind == {"event": 1, "fact": 2, "note": 1, "preference": 1}
    assert stats.by_source == {"agent": 4, "user": 1}
    assert stats.oldest is not None
    assert stats.oldest == read_memory(ana.memories, first.id).created_at
    assert stats.newest is not None
    assert stats.newest > stats.oldest
    assert memory_stats(Knowing(ana.memories.stores, agent="nobody").memories).oldest is None


def test_nothing_stored_reads_as_empty_and_makes_no_files(tmp_path: Path) -> None:
    """Given an empty data folder, when it is read, then there is nothing, and no database is made."""
    stores = Stores(tmp_path / "data")
    nobody = Knowing(stores)
    assert list_memories(nobody.memories, ListMemories(limit=9), now=now_micros()) == []
    assert not forget(nobody.memories, "m")
    with pytest.raises(NotFound):
        read_memory(nobody.memories, "m")
    assert not (tmp_path / "data").exists()
    stores.close()


def test_a_wait_ends_when_the_memory_is_searchable_or_gone(ana: Knowing, pipe: Pipeline) -> None:
    """Given a wait, then it ends with the last stage, when the memory is forgotten meanwhile, and at its time."""
    kept = ana.keep({"content": "a lighthouse"})
    times = iter([0.0, 0.0, 0.5, 99.0])
    with pytest.raises(WaitTimeout, match="is stored, but was not searchable within 1 s") as caught:
        _wait(kept, timeout_seconds=1, monotonic=lambda: next(times), pause=lambda _: None)
    assert caught.value.accepted == (kept.record.id,)
    steps = iter([pipe.chunk, pipe.embed, pipe.index])
    paused: list[float] = []

    def next_stage(seconds: float) -> None:
        paused.append(seconds)
        next(steps)()

    _wait(kept, timeout_seconds=60, monotonic=lambda: 0.0, pause=next_stage)
    assert paused == [0.01, 0.02, 0.04]
    forgotten = ana.keep({"content": "another"})
    _wait(
        forgotten, timeout_seconds=60, monotonic=lambda: 0.0,
        pause=lambda _: _forget(ana, forgotten.record.id),
    )  # fmt: skip
    by_words = ana.keep({"content": "a third"})
    pipe.chunk()
    wait_until_searchable(by_words, with_vectors=False, timeout_seconds=1)


@pytest.mark.parametrize("change", ["content", "tags", "superseded", "forgotten"])
def test_what_changes_while_it_is_being_cut_is_cut_anew(
    ana: Knowing, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Given a memory that is changed between being read by the pipeline and its chunks being stored, then nothing of
    what it was before is found, and what it became is."""
    kept = ana.remember("a violet umbrella", id="m", subject="u", tags=["violet"])
    steps: dict[str, Callable[[], object]] = {
        "content": lambda: ana.update(kept.id, content="a yellow umbrella"),
        "tags": lambda: ana.update(kept.id, tags=["yellow"]),
        "superseded": lambda: ana.remember("a yellow umbrella", id="n", subject="u"),
        "forgotten": lambda: forget(ana.memories, kept.id),
    }
    todo = [steps[change]]

    def cut_late(source: SourceText, check: Callable[[], None]) -> list[NewChunk]:
        if todo:
            todo.pop()()
        return cut(source, check)

    monkeypatch.setattr("memory.pipeline.chunking.cut", cut_late)
    pipe.settle()
    assert not todo
    if change == "tags":
        assert pipe.found("umbrella", tags=("violet",)) == []
        assert pipe.found("umbrella", tags=("yellow",)) == ["a violet umbrella"]
    else:
        assert pipe.found("violet") == []
        assert pipe.found("yellow") == ([] if change == "forgotten" else ["a yellow umbrella"])


def test_jobs_find_memories_made_by_hand_like_their_own(ana: Knowing, pipe: Pipeline) -> None:
    """Given a memory made by a job in the same table, then calls by hand read and change it all the same."""
    with pipe.store.writing() as tx:
        tx.for_agent("ana").memories.add(
            NewMemory(id="job", content="dreamt", created_at=now_micros(), source="dream", kind="event"),
            now=now_micros(),
        )
    assert ana.update("job", content="dreamt twice").source == "dream"


def _wait(kept: StoredMemory, **more: Any) -> None:
    wait_until_searchable(kept, with_vectors=True, **more)


def _forget(ana: Knowing, memory_id: str) -> None:
    forget(ana.memories, memory_id)


def removed_by_a_job(pipe: Pipeline, memory: MemoryRecord) -> None:
    with (
        pipe.store.writing() as tx,
        tx.curation.entry(EntryDraft("test"), job="test", agent=memory.agent, action="prune", at=now_micros()),
    ):
        tx.for_agent(memory.agent).memories.delete([memory.row_id])
