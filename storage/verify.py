"""Checks the consistency of a database: rows, chunks, full text and vectors, each against the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from reverie.errors import ReverieError, StoreUnusable
from storage.catalogue import TABLES
from storage.engines import OPTION, Connection
from storage.index.search_index import Generation
from storage.rows import (
    DamagedRow,
    DamagedText,
    execute,
    from_json,
    is_possible_time,
    is_time,
    read_rows,
    stream,
    tables_of,
)
from storage.stores import Store
from storage.transaction import Transaction
from storage.trust.quotas import wrong_amounts

# The characters that `str.strip` removes: a message of only these has no chunk. SQL's trim removes only spaces.
_BLANKS: Final = ", ".join(str(code) for code in range(0x3001) if chr(code).isspace())
_ACTIVE_MODEL: Final = "(SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"
# Each query counts rows that must not exist; its key describes the fault.
_CHECKS: Final[dict[str, str]] = {
    "messages marked as chunked whose text has no chunk": (
        "SELECT count(*) FROM messages AS m WHERE m.chunked_at IS NOT NULL"
        f" AND trim(m.content, char({_BLANKS})) <> ''"
        " AND NOT EXISTS (SELECT 1 FROM message_chunks WHERE message_row = m.row_id)"
        # A session that was set aside may have lost its chunks while it still has messages.
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
        # During a change of model there are two models, each with an index. Vectors of any other model are left over.
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
    """A chunk of a message: its agent, its text, the text of the whole message, and its words in the forward index.

    `user` sees it, or the users of the session `group`; if neither is set, everybody sees it.
    """

    agent: str
    text: str
    source: str
    lead: str
    words: bytes
    user: str | None
    group: str | None


def sampled_chunks(store: Store, limit: int) -> list[SampledChunk]:
    """Return up to `limit` chunks of messages, spread evenly over the ids: the same ones each time."""
    sql = (
        "SELECT c.agent_id AS agent, c.text AS text, m.content AS source, c.lead AS lead, f.words AS words,"
        ' CASE WHEN s.is_group THEN NULL ELSE s.user_id END AS user, CASE WHEN s.is_group THEN s.id END AS "group"'
        " FROM chunks AS c JOIN message_chunks AS l ON l.chunk_id = c.id JOIN messages AS m ON m.row_id = l.message_row"
        " JOIN sessions AS s ON s.row_id = m.session_row"
        " JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id"
        " WHERE c.id IN (SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM chunks)"
        " WHERE place % max(1, (SELECT count(*) FROM chunks) / :limit) = 0 ORDER BY id LIMIT :limit)"
        " AND l.message_row = (SELECT min(message_row) FROM message_chunks WHERE chunk_id = c.id)"
    )
    with store.reading() as tx:
        return read_rows(execute(tx.connection, sql, limit=limit), SampledChunk)


def verify(store: Store, *, quick: bool = False, block_writers: bool = True) -> Verdict:
    """Check the consistency of a store in one read transaction; a damaged file is reported as a problem.

    `quick` skips reading every page. FTS5 compares full text word by word under the write lock, so this step needs
    `block_writers` and is skipped when `quick`.
    """
    verdict = Verdict()
    try:
        with store.reading() as tx:
            lost = tx.index.lost()
            verdict.wrong += [f"tables of the {one.kind} index are missing: run `reverie db reindex`" for one in lost]
            # SQLite reads no page of a file whose virtual tables it cannot open.
            verdict.wrong += store.database.problems(tx.connection, quick=quick or bool(lost))
            verdict.counts = {name: _number(tx, sql) for name, sql in _COUNTS.items()}
            found = {name: _number(tx, sql) for name, sql in _CHECKS.items()}
            verdict.wrong += [f"{name}: {count:,}" for name, count in found.items() if count]
            if not lost:
                _compare_vectors(tx, verdict)
                _compare_words(tx, verdict)
            verdict.wrong += damaged_values(tx.connection)
            wrong = wrong_amounts(tx.connection)
            if wrong:
                verdict.wrong.append(f"counts of what is stored that are wrong: {wrong:,}")
    except StoreUnusable as error:
        verdict.wrong.append(str(error))
        return verdict
    if not quick and block_writers and not lost:
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
    """Check the index being built: its entries have chunks, and during a change of model it has all new vectors."""
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


# How many damaged rows of one table are named; further ones are only counted.
_NAMED_ROWS: Final = 20
_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {"TEXT": (str,), "INTEGER": (int,), "REAL": (float, int)}
_VECTORS: Final = "SELECT chunk_id FROM chunks_vec WHERE length(embedding) <> 4 * dim ORDER BY chunk_id"

Test = Callable[[Any], str]


def damaged_values(connection: Connection) -> Iterator[str]:
    """Yield a line for each damaged value, up to 20 for each table, then the number of further damaged rows."""
    for table, columns in sorted(tables_of(connection).items()):
        yield from _damaged_in(connection, table, sorted(columns))
        if table == "chunks_vec":
            for (chunk,) in execute(connection, _VECTORS):
                yield _line(table, {"chunk_id": chunk}, "embedding", "not the dimension of its model")


def _damaged_in(connection: Connection, table: str, columns: list[str]) -> Iterator[str]:
    types = _declared(connection, table)
    tests = {name: _test(table, name, *types.get(name, ("", False))) for name in columns}
    # Blobs are not read: their type is enough, and most of a store are vectors.
    read = [f'typeof("{name}") AS "{name}"' if types.get(name, ("",))[0] == "BLOB" else f'"{name}"' for name in columns]
    more = named = 0
    for row in stream(connection, f"SELECT {', '.join(read)} FROM {table}").mappings():
        found = [(name, problem) for name, test in tests.items() if (problem := test(row[name]))]
        for name, problem in found if named < _NAMED_ROWS else ():
            yield _line(table, row, name, problem)
        more += bool(found) and named >= _NAMED_ROWS
        named += bool(found)
    if more:
        yield f"damaged rows of {table} besides these: {more:,}"


def _declared(connection: Connection, table: str) -> dict[str, tuple[str, bool]]:
    """Return the declared type of each column, and whether it may be NULL; a database server enforces both itself."""
    if connection.get_execution_options().get(OPTION) is not None:
        return {}
    rows = connection.exec_driver_sql(f"PRAGMA table_info({table})")
    return {str(row[1]): (str(row[2]), not row[3] and not row[5]) for row in rows}


def _test(table: str, name: str, declared: str, optional: bool) -> Test:
    """Return a function that describes the damage of a value; empty for a valid one."""
    classes = _CLASSES.get(declared)
    is_json = table in TABLES and name in TABLES[table].json

    def test(value: Any) -> str:
        if value is None:
            return "" if optional or not declared else "no value"
        if isinstance(value, DamagedText):
            return "not UTF-8"
        if declared == "BLOB":
            return "" if value == "blob" or (optional and value == "null") else f"{value} instead of a blob"
        if classes is not None and not isinstance(value, classes):
            return f"no {declared}"
        if isinstance(value, int) and is_time(name) and not is_possible_time(value):
            return "no possible time"
        return _json_problem(value) if is_json and value else ""

    return test


def _json_problem(value: str) -> str:
    try:
        from_json(value)
    except DamagedRow:
        return "not JSON"
    return ""


def _line(table: str, row: Mapping[Any, Any], column: str, problem: str) -> str:
    keys = [name for name in ("id", "row_id", "seq", "session_row", "chunk_id", "key", "job") if name in row][:2]
    where = ", ".join(
        f"{name} {value}" for name in keys if isinstance(value := row[name], (int, str)) and name != column
    )
    return f"damaged: {table} ({where or 'no readable id'}), column {column}: {problem}"
