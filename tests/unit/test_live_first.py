"""What is said while history is imported does not wait for it: live rows come first, and history goes on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.lifecycle.importing import ImportRules, import_records
from memory.pipeline.chunking import chunk_messages
from memory.stage import claim_batch
from reverie.clock import from_micros
from reverie.trust.exports import ExportedMessage, ExportedSession
from storage.pipeline.work import Stage
from support.curating import remember
from support.pipeline import Pipeline

IMPORTED = 40
LIMIT = 16
TWO_HOURS = 2 * 3_600 * 1_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def imported(pipe: Pipeline) -> Pipeline:
    """A workspace into which old messages were imported, and then one said."""
    at = from_micros(pipe.now() - TWO_HOURS)
    session = ExportedSession(workspace="ws", agent="ana", id="old", ref_code="ab12", started_at=at, updated_at=at)
    messages = [
        ExportedMessage(
            workspace="ws", agent="ana", id=f"old{number}", session="old", sequence=number + 1, role="user",
            content=f"history number {number}", created_at=at,
        )
        for number in range(IMPORTED)
    ]  # fmt: skip
    rules = ImportRules(now=pipe.now(), operator=True)
    import_records(pipe.stores, [session, *messages], rules)
    pipe.say("the lantern is on the quay")
    pipe.ingest()
    return pipe


def first_claim(pipe: Pipeline, stage: Stage, table: str, key: str) -> list[str]:
    """The texts of the rows that a worker would take next."""
    claim = claim_batch(pipe.store, stage, now=pipe.now(), limit=LIMIT)
    assert claim is not None
    column = "content" if table == "messages" else "text"
    with pipe.store.writing() as tx:
        listed = ",".join(map(str, claim.items))
        sql = f"SELECT {column} FROM {table} WHERE {key} IN ({listed}) ORDER BY {key}"
        texts = [str(row[0]) for row in tx.connection.exec_driver_sql(sql)]
        tx.work.release(claim)
    return texts


def test_a_live_message_is_among_the_first_that_are_cut_and_embedded(imported: Pipeline) -> None:
    """Given more history than a batch, then the batch has the live message, and the oldest of the history."""
    for stage, table, key in (("chunk", "messages", "row_id"), ("embed", "chunks", "id")):
        texts = first_claim(imported, stage, table, key)  # type: ignore[arg-type]
        assert len(texts) == LIMIT
        assert any("the lantern is on the quay" in text for text in texts)
        assert any("history number 0" in text for text in texts)
        imported.chunk()


def test_history_goes_on_while_more_is_said_than_a_batch_takes(imported: Pipeline) -> None:
    for number in range(2 * LIMIT):
        imported.say(f"said number {number}")
    imported.ingest()
    texts = first_claim(imported, "chunk", "messages", "row_id")
    assert sum("history" in text for text in texts) == LIMIT // 4


def test_a_memory_does_not_wait_until_all_messages_are_cut(imported: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a backlog of messages, when the memory is cut, then most of the messages still wait."""
    monkeypatch.setattr("memory.pipeline.chunking.BATCH_SOURCES", 4)
    remember(imported, "coffee", "Kate takes oat milk")
    waiting = []

    def on_batch(message_rows: list[int]) -> None:
        if not message_rows:
            waiting.append(imported.count("messages", "chunked_at IS NULL"))

    chunk_messages(imported.store, now=imported.now, on_batch=on_batch)
    assert waiting[0] > IMPORTED / 2


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT row_id FROM messages WHERE chunked_at IS NULL AND accepted_at < created_at + 3600000000"
         " ORDER BY row_id LIMIT 4", "messages_live_to_chunk"),
        ("SELECT id FROM chunks WHERE embedded_at IS NULL AND stored_at < created_at + 3600000000"
         " ORDER BY id LIMIT 4", "chunks_live_to_embed"),
    ],
)  # fmt: skip
@pytest.mark.sqlite("reads its query plans")
def test_live_rows_are_found_by_their_index(pipe: Pipeline, sql: str, index: str) -> None:
    with pipe.store.reading() as tx:
        plan = " ".join(str(row) for row in tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}"))
    assert index in plan
    assert "TEMP B-TREE" not in plan


def test_the_lag_of_the_pipeline_is_that_of_live_messages(imported: Pipeline) -> None:
    """Given history and one live message, when all are cut and embedded, then one latency of each is reported."""
    assert len(imported.chunk().latencies) == 1
    assert len(imported.embed().latencies) == 1
    imported.index()
    assert [message.accepted_at < message.created_at + TWO_HOURS for message in imported.ready].count(True) == 1
