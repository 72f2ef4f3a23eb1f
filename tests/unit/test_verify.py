"""Verification finds each inconsistency that is planted, and nothing in a store that is sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.index.search_index import VectorEntry
from storage.memories.records import NewMemory
from storage.transaction import Transaction
from storage.verify import verify
from support.pipeline import Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with messages, a repeat, a whitespace-only turn, a file, a dead letter and two agents."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("first words", "second words", "first words", "\n\t\u2003 \u00a0", agent="ana")
    pipe.say({"content": "third words", "tags": ["t"], "sequence": 7}, {"content": "lost", "sequence": 7}, agent="bob")
    pipe.hand_in("file:///a", "a file")
    pipe.settle()
    yield pipe
    pipe.close()


def test_a_sound_store_has_nothing_wrong(pipe: Pipeline) -> None:
    """Given a store that went through every stage, when verified, then it is counted and nothing is found."""
    verdict = verify(pipe.store)
    assert verdict.wrong == []
    held = {"sessions": 2, "messages": 5, "files": 1, "memories": 0}
    expected = {**held, "chunks": 4, "vectors": 4, "indexed": 4, "dead_letters": 1}
    assert verdict.counts == {**expected, "in_vector_index": 4}


def test_a_store_in_the_middle_of_its_work_has_nothing_wrong(pipe: Pipeline) -> None:
    """Given work at every stage, when verified, then what only waits is not called wrong."""
    for stages in (1, 2, 3):
        pipe.say(f"up to stage {stages}")
        for stage in [pipe.ingest, pipe.chunk, pipe.embed][:stages]:
            stage()
        assert verify(pipe.store).wrong == []


def test_the_deletion_of_another_process_is_not_called_damage(pipe: Pipeline) -> None:
    """Given a connection that has checked the full text, and another that deletes all words of one of its pages, when
    the first checks again, then it finds nothing: SQLite alone would say that the emptied page is corrupt.
    """
    pipe.say("words of their own", session="gone")
    pipe.settle()
    database = pipe.store.database
    with database.engine.connect() as connection:
        with connection.begin():
            assert database.problems(connection, quick=False) == []
        pipe.forget("gone")
        with connection.begin():
            assert database.problems(connection, quick=False) == []


def sql(statement: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.connection.exec_driver_sql(statement)


def drop_a_vector_from_the_index(tx: Transaction) -> None:
    tx.index.remove_vectors([1])


def put_an_unknown_vector_into_the_index(tx: Transaction) -> None:
    tx.connection.exec_driver_sql("DELETE FROM chunks_vec WHERE chunk_id = 1")
    tx.connection.exec_driver_sql("UPDATE chunks SET embedded_at = NULL, indexed_at = NULL WHERE id = 1")


def change_a_text_behind_the_index(tx: Transaction) -> None:
    tx.connection.exec_driver_sql("UPDATE chunks SET text = 'other words' WHERE id = 1")


def lose_the_full_text_index(tx: Transaction) -> None:
    generation = tx.index.active("text")
    assert generation is not None
    tx.index.drop(generation)


def begin_a_change_with(*, vector: bool, entry: bool, chunk_id: int = 1) -> Callable[[Transaction], object]:
    def plant(tx: Transaction) -> None:
        generation = tx.index.create("vector", now=1, model="next", dim=2, active=False)
        if vector:
            tx.connection.exec_driver_sql(
                "INSERT INTO chunks_vec (chunk_id, model, dim, embedding) VALUES (?, 'next', 2, x'0000000000000000')",
                (chunk_id,),
            )
        if entry:
            tx.index.fill_vectors(generation, [VectorEntry(chunk_id, "ana", b"\0" * 8)])

    return plant


def leave_a_vector_of_a_change_that_is_over(tx: Transaction) -> None:
    begin_a_change_with(vector=True, entry=True)(tx)
    building = tx.index.building("vector")
    assert building is not None
    tx.index.drop(building)


def remember_without_chunks(tx: Transaction) -> None:
    tx.for_agent("ana").memories.add(NewMemory(id="m", content="oat milk", created_at=1), now=1)
    tx.connection.exec_driver_sql("UPDATE memories SET chunked_at = 1")


def take_the_place_of_a_memory_with_chunks(tx: Transaction) -> None:
    memory = tx.for_agent("ana").memories.add(NewMemory(id="m", content="oat milk", created_at=1), now=1)
    tx.connection.exec_driver_sql("UPDATE memories SET superseded_by = row_id")
    tx.connection.exec_driver_sql("UPDATE chunks SET memory_row = ? WHERE id = 1", (memory.row_id,))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (
            sql("DELETE FROM message_chunks WHERE message_row = 2"),
            "messages marked as chunked whose text has no chunk: 1",
        ),
        (sql("DELETE FROM message_chunks WHERE chunk_id = 1"), "chunks that belong to no message, file or memory: 1"),
        (sql("DELETE FROM chunks_vec WHERE chunk_id = 1"), "chunks marked as embedded without a vector: 1"),
        (
            sql("UPDATE chunks SET embedded_at = NULL, indexed_at = NULL WHERE id = 1"),
            "vectors of chunks not marked as embedded: 1",
        ),
        (
            sql("UPDATE chunks SET agent_id = 'mallory' WHERE id = 2"),
            "chunks whose agent is not that of their message: 1",
        ),
        (
            sql("UPDATE chunks_vec SET model = 'other' WHERE chunk_id = 1"),
            "vectors whose model is not that of the index: 1",
        ),
        (
            sql("UPDATE sessions SET last_sequence = 1 WHERE agent_id = 'bob'"),
            "sessions whose last sequence is below that of their messages: 1",
        ),
        (drop_a_vector_from_the_index, "chunks marked as indexed that are not in the vector index: 1"),
        (put_an_unknown_vector_into_the_index, "entries of the vector index without a vector: 1"),
        (change_a_text_behind_the_index, "the full-text index differs from the chunks: run `reverie db reindex`"),
        (lose_the_full_text_index, "there is no full-text index: run `reverie db reindex`"),
        (remember_without_chunks, "memories marked as chunked whose text has no chunk: 1"),
        (take_the_place_of_a_memory_with_chunks, "chunks of superseded memories: 1"),
        (sql("INSERT INTO curation_recording (entry_id) VALUES (1)"), "entries of the curation log left open: 1"),
        (sql("DELETE FROM forward_index WHERE chunk_id = 1"), "chunks without their row in the forward index: 1"),
        (
            sql("UPDATE chunks SET agent_id = 'mallory' WHERE id = 2"),
            "chunks without their row in the forward index: 1",
        ),
        (
            sql(
                "INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, words)"
                " SELECT 'eve', chunk_id, 1, 1, 1, 'user', x'' FROM forward_index"
            ),
            "rows of the forward index without their chunk: 4",
        ),
        (begin_a_change_with(vector=True, entry=True), None),
        (begin_a_change_with(vector=True, entry=False), "vectors of the next model that are not in its index: 1"),
        (
            begin_a_change_with(vector=False, entry=True),
            "entries of the vector index being built without a vector: 1",
        ),
        (
            begin_a_change_with(vector=False, entry=True, chunk_id=99),
            "entries of the vector index being built without a chunk: 1",
        ),
        (leave_a_vector_of_a_change_that_is_over, "vectors whose model is not that of the index: 1"),
    ],
)
def test_each_planted_inconsistency_is_found(
    pipe: Pipeline, plant: Callable[[Transaction], object], found: str | None
) -> None:
    """Given one thing that is wrong, when verified, then it is named; two models in the middle of a change are not."""
    with pipe.store.writing() as tx:
        plant(tx)
    wrong = verify(pipe.store).wrong
    assert found in wrong if found else wrong == []


@pytest.mark.sqlite("writes past its foreign keys")
def test_a_row_that_refers_to_a_missing_row_is_found(pipe: Pipeline) -> None:
    """Given a chunk whose session was removed behind the back of the foreign keys, then it is named."""
    with pipe.store.database.autocommit() as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("DELETE FROM sessions WHERE agent_id = 'bob'")
        raw.execute("PRAGMA foreign_keys = ON")
    assert "a row of messages refers to a missing row of sessions" in verify(pipe.store).wrong


@pytest.mark.sqlite("reads the version of a file's content")
def test_verifying_changes_nothing(pipe: Pipeline) -> None:
    """Given a store, when verified twice, then the verdicts and the file's content are the same."""
    with pipe.store.reading() as tx:
        before = tx.connection.exec_driver_sql("PRAGMA data_version").scalar()
        assert verify(pipe.store) == verify(pipe.store)
        assert tx.connection.exec_driver_sql("PRAGMA data_version").scalar() == before


@pytest.mark.sqlite("damages a file")
def test_a_damaged_file_is_a_finding_and_not_a_crash(tmp_path: Path) -> None:
    """Given a store with overwritten pages, when verified, then the damage is said."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say(*[f"some words {number}" for number in range(200)])
    pipe.settle()
    pipe.close()
    path = tmp_path / "data" / "workspaces" / "ws" / "memory.db"
    content = bytearray(path.read_bytes())
    content[-8 * 4096 : -4096] = b"\xff" * (7 * 4096)
    path.write_bytes(content)
    again = Pipeline(tmp_path / "data")
    assert verify(again.store).wrong
    again.close()
