"""Search stays within one agent, one session and the tags asked for; what is deleted is gone to the last byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.embedders.base import HashEmbedder
from reverie.errors import NotFound
from storage.index.chunk_filter import ChunkFilter
from storage.maintenance import optimize
from support.pipeline import Pipeline

CANARY = "the canary sings of zanzibar"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def test_no_mode_finds_what_another_agent_was_told_under_the_same_names(pipe: Pipeline) -> None:
    """Given two agents with the same session id, tags and words, when one recalls, then it sees its own alone."""
    (mine,) = pipe.say({"content": CANARY, "tags": ["bird"]}, agent="ana")
    (theirs,) = pipe.say({"content": CANARY, "tags": ["bird"]}, agent="bob")
    pipe.settle()
    for agent, own in (("ana", mine), ("bob", theirs)):
        for mode in ("keyword", "vector", "hybrid"):
            for narrow in ({}, {"session": "s"}, {"tags": ("bird",)}, {"session": "s", "tags": ("bird",)}):
                assert [memory.id for memory in pipe.recall(CANARY, agent=agent, mode=mode, limit=100, **narrow)] == [
                    own
                ]


def test_an_agent_without_memories_finds_nothing_and_has_no_session(pipe: Pipeline) -> None:
    """Given another agent's memories, when a stranger recalls, then there is nothing, whatever it names."""
    pipe.say({"content": CANARY, "tags": ["bird"]})
    pipe.settle()
    for mode in ("keyword", "vector", "hybrid"):
        assert len(pipe.recall(CANARY, agent="mallory", mode=mode, limit=100)) == 0
        assert len(pipe.recall(CANARY, agent="mallory", mode=mode, limit=100, tags=("bird",))) == 0
    with pytest.raises(NotFound):
        pipe.recall(CANARY, agent="mallory", session="s")


def test_many_neighbours_of_another_agent_do_not_crowd_out_the_own(pipe: Pipeline) -> None:
    """Given 300 better matches of another agent, when one recalls, then its single match is found."""
    pipe.say(*[f"{CANARY} {number}" for number in range(300)], agent="bob")
    pipe.say("a note on zanzibar")
    pipe.settle()
    for mode in ("keyword", "vector", "hybrid"):
        assert [m.text for m in pipe.recall("zanzibar", mode=mode, limit=1)] == ["a note on zanzibar"]


def test_many_better_matches_in_other_sessions_do_not_crowd_out_the_session_asked_for(pipe: Pipeline) -> None:
    """Given 300 matches elsewhere, when one session with a single match is searched, then it is found."""
    pipe.say(*[f"{CANARY} {number}" for number in range(300)], session="elsewhere")
    pipe.say("a note on zanzibar", session="here")
    pipe.settle()
    for mode in ("keyword", "vector", "hybrid"):
        found = pipe.recall("zanzibar", mode=mode, limit=100, session="here")
        assert [memory.text for memory in found] == ["a note on zanzibar"]


def test_a_result_has_every_tag_asked_for(pipe: Pipeline) -> None:
    """Given messages with one, two and no tags, when two are asked for, then only what has both is found."""
    pipe.say(
        {"content": "zanzibar with both", "tags": ["food", "trip"]},
        {"content": "zanzibar with one", "tags": ["food"]},
        {"content": "zanzibar with none"},
        *[{"content": f"zanzibar trip {number}", "tags": ["trip"]} for number in range(150)],
    )
    pipe.settle()
    for mode in ("keyword", "vector", "hybrid"):
        found = pipe.recall("zanzibar", mode=mode, limit=100, tags=("food", "trip"))
        assert [memory.text for memory in found] == ["zanzibar with both"]
        assert len(pipe.recall("zanzibar", mode=mode, limit=100, tags=("food", "never used"))) == 0


def test_search_in_the_index_itself_is_bound_to_the_agent_of_the_filter(pipe: Pipeline) -> None:
    """Given a filter that names a session row of another agent, when searched, then nothing is found."""
    pipe.say(CANARY, agent="bob")
    pipe.settle()
    query = HashEmbedder().embed_query(CANARY).tobytes()
    with pipe.store.reading() as tx:
        row = tx.for_agent("bob").sessions.get("s").row_id
        for within in (ChunkFilter("ana"), ChunkFilter("ana", (row,)), ChunkFilter("", (row,))):
            assert tx.index.search_text("zanzibar", within, 10) == []
            assert tx.index.search_vectors(query, within, 10) == []
        assert len(tx.index.search_text("zanzibar", ChunkFilter("bob", (row,)), 10)) == 1


def test_a_deleted_session_leaves_no_row_and_no_word_in_any_file(pipe: Pipeline) -> None:
    """Given a session with messages, a file and dead letters, when it is forgotten, then no byte of it is left."""
    secret = "xylophonequagga"
    owner = f"{secret}-user"
    pipe.say(
        {"content": f"my password is {secret}", "tags": [f"{secret}-tag"], "name": f"{secret}-name"},
        {"content": f"and {secret} again, twice", "sequence": 5, "metadata": {"note": secret}},
        {"content": f"this {secret} comes too late", "sequence": 5},
        provider="telegram",
        chat_id=f"{secret}-chat",
        user=owner,
    )
    pipe.hand_in(f"file:///{secret}.txt", f"a file about {secret}", session="s")
    pipe.say("an innocent bystander", session="other")
    pipe.settle()
    assert {found.kind for found in pipe.recall(secret, mode="keyword", limit=100, user=owner)} == {"message", "file"}
    assert len(pipe.dead_letters()) == 1

    assert pipe.forget("s")

    for user in (owner, None):
        assert pipe.found(secret, user=user) == []
        found = pipe.recall(f"my password is {secret}", mode="vector", limit=100, user=user)
        assert [one.text for one in found] == ["an innocent bystander"]
    for table in ("messages", "chunks", "chunks_vec", "message_chunks"):
        assert pipe.count(table) == 1, table
    for table in ("files", "chunk_tags", "claims", "dead_letters"):
        assert pipe.count(table) == 0, table
    with pipe.store.reading() as tx:
        generation = tx.index.active("vector")
        assert generation is not None
        assert len(tx.index.vector_ids(generation)) == 1
    optimize(pipe.store, now=pipe.now())
    folder = pipe.store.database.path.parent
    left = {path.name for path in folder.iterdir() if secret.encode() in path.read_bytes().lower()}
    # The mark that keeps late arrivals out holds the name of the chat; it is dropped after 30 days.
    pipe.advance(31 * 24 * 3_600)
    optimize(pipe.store, now=pipe.now())
    gone = {path.name for path in folder.iterdir() if secret.encode() in path.read_bytes().lower()}
    assert (left <= {"memory.db"}, gone) == (True, set())


def test_the_stem_of_a_deleted_word_is_gone_from_the_full_text_too(pipe: Pipeline) -> None:
    """Given many sessions, when one is deleted, then FTS5 keeps no term of it, not as a deletion mark either."""
    for number in range(30):
        pipe.say(f"ordinary talk number {number}", session=f"n{number}")
    pipe.say("flibbertigibbet is the word", session="s")
    pipe.settle()
    pipe.forget("s")
    optimize(pipe.store, now=pipe.now())
    content = b"".join(path.read_bytes() for path in pipe.store.database.path.parent.iterdir())
    assert b"flibbert" not in content
    assert len(pipe.found("ordinary")) == 30


def test_deleting_one_agents_session_leaves_the_others_of_the_same_name(pipe: Pipeline) -> None:
    """Given two agents with a session `s`, when one forgets it, then the other's is untouched."""
    pipe.say(CANARY, agent="ana")
    pipe.say(CANARY, agent="bob")
    pipe.settle()
    assert pipe.forget("s", agent="ana")
    assert pipe.found("zanzibar", agent="ana") == []
    assert pipe.found("zanzibar", agent="bob") == [CANARY]
    assert not pipe.forget("s", agent="mallory")
    assert pipe.found("zanzibar", agent="bob") == [CANARY]
