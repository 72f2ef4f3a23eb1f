"""Checks the consistency of a database: rows, chunks, full text and vectors, each against the others."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from reverie.errors import ReverieError, StoreUnusable
from storage.recall.generations import Generation
from storage.rows import execute, read_rows
from storage.stores import Store
from storage.transaction import Transaction
from storage.trust.amounts import wrong_amounts

# What `str.strip` removes: a message of nothing else has no chunk. SQL's trim removes only spaces.
_BLANKS: Final = ", ".join(str(code) for code in range(0x3001) if chr(code).isspace())
_ACTIVE_MODEL: Final = "(SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"
# Each counts rows that must not exist; the key says what is wrong with them.
_CHECKS: Final[dict[str, str]] = {
    "messages marked as chunked whose text has no chunk": (
        "SELECT count(*) FROM messages AS m WHERE m.chunked_at IS NOT NULL"
        f" AND trim(m.content, char({_BLANKS})) <> ''"
        " AND NOT EXISTS (SELECT 1 FROM message_chunks WHERE message_row = m.row_id)"
        # Of a session that was set aside chunks go before messages.
        " AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.row_id = m.session_row AND s.agent_id <> '')"
    ),
    "chunks that belong to no message, file or memory": (
        "SELECT count(*) FROM chunks AS c WHERE c.file_row IS NULL AND c.memory_row IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM message_chunks WHERE chunk_id = c.id)"
    ),
    "memories marked as chunked whose text has no chunk": (
        "SELECT count(*) FROM memories AS m WHERE m.chunked_at IS NOT NULL AND m.superseded_by IS NULL"
        f" AND trim(m.content, char({_BLANKS})) <> ''"
        " AND NOT EXISTS (SELECT 1 FROM chunks WHERE memory_row = m.row_id)"
    ),
    "chunks of superseded memories": (
        "SELECT count(*) FROM chunks AS c JOIN memories AS m ON m.row_id = c.memory_row"
        " WHERE m.superseded_by IS NOT NULL"
    ),
    "entries of the curation log left open": "SELECT count(*) FROM curation_recording",
    "chunks marked as embedded without a vector": (
        "SELECT count(*) FROM chunks AS c WHERE c.embedded_at IS NOT NULL"
        f" AND NOT EXISTS (SELECT 1 FROM chunks_vec WHERE chunk_id = c.id AND model = {_ACTIVE_MODEL})"
    ),
    "vectors of chunks not marked as embedded": (
        "SELECT count(*) FROM chunks_vec AS v JOIN chunks AS c ON c.id = v.chunk_id WHERE c.embedded_at IS NULL"
    ),
    "chunks whose agent is not that of their message": (
        "SELECT count(*) FROM message_chunks AS l JOIN messages AS m ON m.row_id = l.message_row"
        " JOIN chunks AS c ON c.id = l.chunk_id WHERE c.agent_id <> m.agent_id"
    ),
    "vectors whose model is not that of the index": (
        # During a change of model there are two models, each with an index: one that no index names is left over.
        f"SELECT count(*) FROM chunks_vec AS v WHERE {_ACTIVE_MODEL} IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM indexes AS i WHERE i.kind = 'vector' AND i.model = v.model AND i.dim = v.dim)"
    ),
    "chunks without their row in the forward index": (
        "SELECT count(*) FROM chunks AS c WHERE NOT EXISTS"
        " (SELECT 1 FROM forward_index AS f WHERE f.agent_id = c.agent_id AND f.chunk_id = c.id)"
    ),
    "rows of the forward index without their chunk": (
        "SELECT count(*) FROM forward_index AS f WHERE NOT EXISTS"
        " (SELECT 1 FROM chunks AS c WHERE c.id = f.chunk_id AND c.agent_id = f.agent_id)"
    ),
    "sessions whose last sequence is below that of their messages": (
        "SELECT count(*) FROM sessions AS s WHERE s.agent_id <> '' AND s.last_sequence <"
        " (SELECT coalesce(max(sequence), 0) FROM messages WHERE session_row = s.row_id)"
    ),
}
_COUNTS: Final[dict[str, str]] = {
    "sessions": "SELECT count(*) FROM sessions WHERE agent_id <> ''",
    "messages": "SELECT count(*) FROM messages",
    "files": "SELECT count(*) FROM files WHERE agent_id <> ''",
    "memories": "SELECT count(*) FROM memories WHERE superseded_by IS NULL",
    "chunks": "SELECT count(*) FROM chunks",
    "vectors": f"SELECT count(*) FROM chunks_vec WHERE model = {_ACTIVE_MODEL}",
    "indexed": "SELECT count(*) FROM chunks WHERE indexed_at IS NOT NULL",
    "dead_letters": "SELECT count(*) FROM dead_letters",
}


@dataclass(slots=True)
class Verdict:
    """The counts of a verification, and the problems it found; without problems the store is consistent."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SampledChunk:
    """A chunk of a message: its agent, its text, and the text of the whole message.

    Who sees it: `user`, or the users of the session `group`; everybody without either.
    """

    agent: str
    text: str
    source: str
    user: str | None
    group: str | None


def random_chunks(store: Store, limit: int) -> list[SampledChunk]:
    """Return up to `limit` chunks of messages, chosen at random."""
    sql = (
        "SELECT c.agent_id AS agent, c.text AS text, m.content AS source,"
        ' CASE WHEN s.is_group THEN NULL ELSE s.user_id END AS user, CASE WHEN s.is_group THEN s.id END AS "group"'
        " FROM chunks AS c JOIN message_chunks AS l ON l.chunk_id = c.id JOIN messages AS m ON m.row_id = l.message_row"
        " JOIN sessions AS s ON s.row_id = m.session_row"
        " WHERE c.id IN (SELECT id FROM chunks ORDER BY random() LIMIT :limit) "
        " AND l.message_row = (SELECT min(message_row) FROM message_chunks WHERE chunk_id = c.id)"
    )
    with store.reading() as tx:
        return read_rows(execute(tx.connection, sql, limit=limit), SampledChunk)


def verify(store: Store, *, quick: bool = False, block_writers: bool = True) -> Verdict:
    """Check the consistency of a store in one read transaction; a damaged file is reported as a problem.

    `quick` skips reading every page. FTS5 compares full text word by word under the write lock, so this step is
    skipped when `quick`, and without `block_writers`.
    """
    verdict = Verdict()
    try:
        with store.reading() as tx:
            verdict.wrong += store.database.problems(tx.connection, quick=quick)
            verdict.counts = {name: _number(tx, sql) for name, sql in _COUNTS.items()}
            found = {name: _number(tx, sql) for name, sql in _CHECKS.items()}
            verdict.wrong += [f"{name}: {count:,}" for name, count in found.items() if count]
            _compare_vectors(tx, verdict)
            _compare_words(tx, verdict)
            wrong = wrong_amounts(tx.connection)
            if wrong:
                verdict.wrong.append(f"counts of what is stored that are wrong: {wrong:,}")
    except StoreUnusable as error:
        verdict.wrong.append(str(error))
        return verdict
    if not quick and block_writers:
        _check_full_text(store, verdict)
    return verdict


def _number(tx: Transaction, sql: str) -> int:
    return int(execute(tx.connection, sql).scalar_one())


def _compare_vectors(tx: Transaction, verdict: Verdict) -> None:
    expected = set(execute(tx.connection, "SELECT id FROM chunks WHERE indexed_at IS NOT NULL").scalars())
    generation = tx.index.active("vector")
    held = tx.index.vector_ids(generation) if generation else set()
    verdict.counts["in_vector_index"] = len(held)
    if expected - held:
        verdict.wrong.append(f"chunks marked as indexed that are not in the vector index: {len(expected - held):,}")
    if generation and held - _with_vector(tx, generation):
        wrong = len(held - _with_vector(tx, generation))
        verdict.wrong.append(f"entries of the vector index without a vector: {wrong:,}")
    building = tx.index.building("vector")
    if building:
        _compare_next(tx, building, verdict)


def _compare_next(tx: Transaction, building: Generation, verdict: Verdict) -> None:
    """Check the index being built: its entries have chunks, and in a change of model all new vectors are in it."""
    held = tx.index.vector_ids(building)
    chunks = set(execute(tx.connection, "SELECT id FROM chunks").scalars())
    if held - chunks:
        verdict.wrong.append(f"entries of the vector index being built without a chunk: {len(held - chunks):,}")
    vectors = _with_vector(tx, building)
    if held & chunks - vectors:
        wrong = len(held & chunks - vectors)
        verdict.wrong.append(f"entries of the vector index being built without a vector: {wrong:,}")
    if tx.index.changing():
        verdict.counts["next_vectors"] = len(vectors)
        if vectors - held:
            verdict.wrong.append(f"vectors of the next model that are not in its index: {len(vectors - held):,}")


def _with_vector(tx: Transaction, generation: Generation) -> set[int]:
    sql = "SELECT chunk_id FROM chunks_vec WHERE model = :model"
    return set(execute(tx.connection, sql, model=generation.model).scalars())


def _compare_words(tx: Transaction, verdict: Verdict) -> None:
    generation = tx.index.active("text")
    if generation is None:
        verdict.wrong.append("there is no full-text index: run `reverie db reindex`")
        return
    indexed = tx.index.text_ids(generation)
    chunks = set(execute(tx.connection, "SELECT id FROM chunks").scalars())
    if chunks != indexed:
        verdict.wrong.append(
            f"chunks in only one of the table of chunks and the full-text index: {len(chunks ^ indexed):,}"
        )


def _check_full_text(store: Store, verdict: Verdict) -> None:
    """Compare full text with the chunks word by word, in a transaction that is undone."""
    with suppress(_UndoneError), store.writing() as tx:
        generation = tx.index.active("text")
        if generation is not None and tx.index.differs_from_texts(generation):
            verdict.wrong.append("the full-text index differs from the chunks: run `reverie db reindex`")
        raise _UndoneError


class _UndoneError(ReverieError):
    """Ends a transaction without its changes."""
