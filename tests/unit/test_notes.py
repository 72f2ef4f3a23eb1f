"""Notes: texts under ids of their own, which they keep however they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.memories.agent_memories import StoredMemory
from memory.memories.notes import delete_note, list_notes, read_note, to_note, update_note
from reverie.calls import build
from reverie.clock import now_micros
from reverie.errors import Conflict, NotFound, Rejected
from reverie.memories.calls import UpdateNote
from storage.viewer import Viewer
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline over an empty data folder."""
    made = Pipeline(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ana(pipe: Pipeline) -> Knowing:
    """What ana knows."""
    return Knowing(pipe.stores, workspace=WORKSPACE)


def _update(ana: Knowing, note_id: str, **changes: Any) -> StoredMemory:
    return update_note(ana.memories, build(UpdateNote, {"note_id": note_id, **changes}), now=now_micros())


def test_a_note_gets_an_id_and_a_place(ana: Knowing) -> None:
    """Given a note about a user, then it has an id of its own and lies in the session memory:{user}."""
    note = to_note(ana.note("Likes window seats", user="kate", tags=[" Travel "], source="memory_save"))
    assert note.note_id.startswith("note-")
    assert (note.session, note.user, note.tags, note.source) == ("memory:kate", "kate", ["travel"], "memory_save")
    assert to_note(ana.note("about nobody")).session is None
    stored = ana.record(note.note_id)
    assert (stored.note_id, stored.kind, stored.lifetime, stored.protected) == (
        note.note_id,
        "note",
        "long_term",
        False,
    )
    assert ana.record(ana.note("mine").id).protected


def test_an_update_keeps_the_id_and_the_time(ana: Knowing, pipe: Pipeline) -> None:
    """Given an indexed note, when it is updated, then id, user and created_at stay and only its new words find it."""
    note = ana.note("Likes window seats", user="kate", tags=["travel"])
    pipe.settle()
    changed = _update(ana, note.id, content="Prefers the aisle").record
    assert (changed.id, changed.note_id, changed.created_at) == (note.id, note.note_id, note.created_at)
    assert (changed.row_id, changed.tags, changed.session) == (note.row_id, note.tags, "memory:kate")
    assert "aisle" in changed.concept_tags
    pipe.settle()
    assert pipe.found("window", user="kate") == []
    assert pipe.found("aisle", user="kate") == ["Prefers the aisle"]
    assert pipe.found("aisle") == []


def test_an_update_of_tags_alone_leaves_the_index(ana: Knowing, pipe: Pipeline) -> None:
    """Given an indexed note, when its tags or nothing of its text change, then it is found all the while."""
    note = ana.note("Likes window seats")
    pipe.settle()
    _update(ana, note.id, content="Likes window seats", tags=["travel"], metadata={"a": 1}, importance=1.0)
    assert pipe.found("window", tags=("travel",)) == ["Likes window seats"]
    assert ana.record(note.id).metadata == {"a": 1}


def test_the_same_note_twice_is_one(ana: Knowing) -> None:
    """Given a note sent again, then nothing changes; another text, or a memory's id, is a conflict."""
    first = ana.note("once", note_id="n")
    assert ana.note("once", note_id="n") == first
    with pytest.raises(Conflict, match="'n': update that one"):
        ana.note("twice", note_id="n")
    ana.remember("a memory", id="m")
    with pytest.raises(Conflict, match="'m': update that one"):
        ana.note("a memory", note_id="m")
    assert len(list_notes(ana.memories, user=None, tags=(), limit=9, offset=0)) == 1


def test_a_deleted_note_is_gone_for_good(ana: Knowing, pipe: Pipeline) -> None:
    """Given an indexed note, when it is deleted, then no row, chunk or vector of it is left, and its id is free."""
    note = ana.note("Likes window seats")
    pipe.settle()
    assert delete_note(ana.memories, note.id)
    assert not delete_note(ana.memories, note.id)
    for table in ("memories", "chunks", "chunks_vec"):
        assert pipe.count(table) == 0
    assert ana.note("something else", note_id=note.id).content == "something else"


def test_a_note_of_another_agent_is_not_there(ana: Knowing, pipe: Pipeline) -> None:
    """Given a note of ana's, then kate cannot read, change or delete it, nor learn that it exists."""
    note = ana.note("ana's own", user="otto")
    kate = Knowing(pipe.stores, agent="kate", workspace=WORKSPACE)
    for touch in (lambda: read_note(kate.memories, note.id), lambda: _update(kate, note.id, content="hers")):
        with pytest.raises(NotFound, match="agent kate has no note"):
            touch()
    assert not delete_note(kate.memories, note.id)
    assert list_notes(kate.memories, user="otto", tags=(), limit=9, offset=0) == []
    assert read_note(ana.memories, note.id).content == "ana's own"
    nowhere = Knowing(pipe.stores, workspace="nowhere")
    for touch in (lambda: read_note(nowhere.memories, note.id), lambda: _update(nowhere, note.id, content="x")):
        with pytest.raises(NotFound):
            touch()
    assert not delete_note(nowhere.memories, note.id)
    assert "nowhere" not in pipe.stores.names()


def test_notes_go_with_the_session_of_their_user(ana: Knowing, pipe: Pipeline) -> None:
    """Given notes about two users, when the session of one is forgotten, then hers are gone and the other's stay."""
    ana.note("about kate", user="kate")
    ana.note("about otto", user="otto")
    assert pipe.forget("memory:kate")
    assert [note.user for note in list_notes(ana.memories, user=None, tags=(), limit=9, offset=0)] == ["otto"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"content": ""}, "content"),
        ({"content": "x" * 65_537}, "content"),
        ({"content": "x", "note_id": "a\nb"}, "note_id"),
        ({"content": "x", "note_id": "stats"}, "note_id"),
        ({"content": "x", "user": "u" * 250}, "user"),
        ({"content": "x", "source": ""}, "source"),
        ({"content": "x", "importance": -1}, "importance"),
        ({"content": "x", "tags": ["t" * 65]}, "tags"),
        ({"content": "x", "tier": "account"}, "tier"),
    ],
)
def test_a_note_at_fault_is_refused(ana: Knowing, given: dict[str, Any], field: str) -> None:
    """Given a note that cannot be, then the error names the field and nothing is stored."""
    with pytest.raises(Rejected) as caught:
        ana.note(**given)
    assert caught.value.field == field
    assert list_notes(ana.memories, user=None, tags=(), limit=9, offset=0) == []


@pytest.mark.parametrize("viewer", [None, Viewer("bo")], ids=["the agent", "bo"])
@pytest.mark.parametrize("user", ["lif", None])
def test_a_note_enters_no_session_of_others_by_its_name(
    ana: Knowing, pipe: Pipeline, user: str | None, viewer: Viewer | None
) -> None:
    """Given a session `memory:bo` that is not bo's, then notes about bo are in none, and it does not become bo's."""
    ana.memories = replace(ana.memories, viewer=viewer)
    pipe.say("the cellar door is open", session="memory:bo", user=user)
    pipe.settle()
    assert [to_note(ana.note(content, user="bo")).session for content in ("likes plums", "likes quinces")] == [None] * 2
    pipe.settle()
    assert [pipe.found("plums", user=one) for one in ("bo", "lif")] == [["likes plums"], []]
    with pipe.store.reading() as tx:
        assert tx.for_agent("ana").sessions.get("memory:bo").user == user
    pipe.forget("memory:bo")
    assert len(list_notes(ana.memories, user="bo", tags=(), limit=9, offset=0)) == 2


def test_a_note_has_one_kind_and_one_tier(ana: Knowing) -> None:
    """Given a note, then as a memory its text may be changed, its kind and its tier may not."""
    note = ana.note("before")
    assert ana.update(note.id, content="after").note_id == note.id
    refused: list[dict[str, Any]] = [
        {"kind": "fact"}, {"tier": "channel", "channel": "c"}, {"content": "x", "kind": "fact"},
    ]  # fmt: skip
    for changes in refused:
        with pytest.raises(Rejected, match="is a note"):
            ana.update(note.id, **changes)
    with pytest.raises(Rejected, match="nothing to change"):
        _update(ana, note.id)
