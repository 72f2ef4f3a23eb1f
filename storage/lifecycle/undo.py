"""Undoes an entry of the curation log: restores every row that it changed, also in the indexes.

Access counts, and the chunks and tags that the pipeline derives from a memory, may have changed since; any other later
change is a conflict. The undo happens in the caller's transaction, in full or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pysqlite3
from msgspec.structs import replace
from sqlalchemy import exc

from reverie.errors import Conflict
from reverie.upkeep import CurationChange
from storage.catalogue import TABLES, listed
from storage.curation import CurationEntry, CurationLog
from storage.engines import Connection
from storage.index.search_index import SearchIndex, VectorEntry
from storage.memories.memories import MemoryChunks
from storage.rows import defer_references, execute

# The tables that entries contain, parents first: the order in which rows are restored.
_RECORDED: Final = {name: table.recorded for name, table in TABLES.items() if table.recorded is not None}
_REFERRING: Final = tuple(name for name in _RECORDED if TABLES[name].refers and TABLES[name].of_agent)
# Columns that readers count up: an undo subtracts what the job added and keeps what was counted afterwards.
_COUNTED: Final = frozenset({"access_count", "accessed_at"})
# Columns that the pipeline derives from the memory, and the time at which the memory was last confirmed.
_DERIVED: Final = frozenset({"chunked_at", "confirmed_at"})
# The tags of chunks are derived from the memory's.
_DERIVED_TABLE: Final = "chunk_tags"


def undo(connection: Connection, entry: CurationEntry, *, at: int, prefix: str = "", request: str = "") -> None:
    """Restore what an entry changed and mark it as undone; errors name entries with `prefix` before their numbers.

    If a request with the same key has already undone the entry, nothing happens: only its answer was lost.

    Raises `Conflict` when it has already been undone, when a row was changed again (naming the later entry to undo
    first, if there is one), or when something to which a row belongs is gone. The caller must then roll back: rows may
    be restored in part.
    """
    log = CurationLog(connection)
    if log.was_undone_by(entry.id, request):
        return
    if entry.undone_at is not None:
        raise Conflict(f"entry {prefix}{entry.id} has already been undone", field="id")
    changes = _merged(log.changes(entry.id))
    for change in changes:
        if not _is_unchanged(connection, change):
            later = log.later_entry(entry.id, change.table, dict(_key_parameters(change)))
            raise _cannot(prefix, entry, f"a row of {change.table} has been changed since", later)
    _refuse_if_successor(connection, log, entry, changes, prefix)
    # A memory and its successor refer to each other, so no order of restoring them would do.
    defer_references(connection)
    try:
        _restore(connection, MemoryChunks(connection, entry.agent), changes)
    except (exc.IntegrityError, pysqlite3.IntegrityError) as error:
        raise _cannot(prefix, entry, "what it removed has been replaced since") from error
    _refuse_orphans(connection, entry, changes, prefix)
    log.mark_undone(entry.id, at=at, request=request)


def _merged(changes: Iterable[CurationChange]) -> list[CurationChange]:
    """Return one change for each row: from before its first change to after its last."""
    rows: dict[tuple[object, ...], CurationChange] = {}
    for change in changes:
        key = (change.table, *_key(change))
        first = rows.get(key)
        rows[key] = replace(change, before=first.before) if first else change
    return [change for change in rows.values() if change.before != change.after]


def _key(change: CurationChange) -> tuple[object, ...]:
    row = change.after or change.before or {}
    return tuple(row[name] for name in TABLES[change.table].key)


def _is_unchanged(connection: Connection, change: CurationChange) -> bool:
    """Return whether a row is still as the entry left it, counted and derived columns aside."""
    if change.table == _DERIVED_TABLE:
        return True
    now = _current(connection, change)
    if change.after is None or now is None:
        return now is None and change.after is None
    before = change.before or {}
    compared = [
        name
        for name, value in change.after.items()
        if name not in _COUNTED | _DERIVED and (change.before is None or before[name] != value)
    ]
    return all(now[name] == change.after[name] for name in compared)


def _current(connection: Connection, change: CurationChange) -> dict[str, Any] | None:
    image = change.after or change.before or {}
    blobs = _RECORDED[change.table].blobs
    columns = ", ".join(f"hex({name}) AS {name}" if name in blobs else name for name in image)
    sql = f"SELECT {columns} FROM {change.table} WHERE {_where(change.table)}"
    row = execute(connection, sql, **_key_parameters(change)).mappings().one_or_none()
    return None if row is None else dict(row)


def _refuse_if_successor(
    connection: Connection, log: CurationLog, entry: CurationEntry, changes: Sequence[CurationChange], prefix: str
) -> None:
    """Raise `Conflict` for an added memory that has replaced another since: deleting it would delete that one too."""
    own_rows = [change.after["row_id"] for change in _remaining_memories(changes) if change.after]
    for row in [
        change.after["row_id"] for change in _remaining_memories(changes) if change.after and change.before is None
    ]:
        superseded = execute(
            connection,
            "SELECT row_id FROM memories WHERE superseded_by = :row"
            " AND row_id NOT IN (SELECT value FROM json_each(:own_rows)) LIMIT 1",
            row=row,
            own_rows=own_rows,
        ).scalar()
        if superseded is not None:
            later = log.later_entry(entry.id, "memories", {"row_id": superseded})
            what = "what it added has replaced another memory since"
            raise _cannot(prefix, entry, what, later)


def _restore(connection: Connection, chunks: MemoryChunks, changes: Sequence[CurationChange]) -> None:
    ranked = sorted(changes, key=lambda change: list(TABLES).index(change.table))
    # Memories whose chunks the pipeline has created again since.
    rewritten = [change for change in changes if change.table == "memories" and _is_rewritten(change)]
    rows = [change.after["row_id"] for change in rewritten if change.after]
    chunks.remove(rows)
    # A category and key may have only one current fact: this makes room for it.
    sql = "UPDATE memories SET superseded_by = row_id WHERE row_id IN (SELECT value FROM json_each(:rows))"
    execute(connection, sql, rows=rows)
    for change in ranked:
        if change.before is not None and change.after is not None:
            _restore_columns(connection, change, also=("superseded_by", "chunked_at") if change in rewritten else ())
    # After that, because deleting an added memory also deletes those that still name it as their successor.
    for change in reversed([change for change in ranked if change.before is None]):
        execute(connection, f"DELETE FROM {change.table} WHERE {_where(change.table)}", **_key_parameters(change))
    _insert_removed(connection, [change for change in ranked if change.after is None])
    memory_rows = [change.after["row_id"] for change in _remaining_memories(changes) if change.after]
    chunks.retag(memory_rows)


def _is_rewritten(change: CurationChange) -> bool:
    if change.after is None:
        return False
    before = change.before
    return before is None or any(before[name] != change.after[name] for name in ("content", "superseded_by"))


def _restore_columns(connection: Connection, change: CurationChange, *, also: Sequence[str]) -> None:
    before, after = change.before or {}, change.after or {}
    changed = [name for name, value in before.items() if after[name] != value or name in also]
    parameters = {f"was_{name}": before[name] for name in changed}
    parameters |= {f"then_{name}": after[name] for name in changed}
    settings = ", ".join(_setting(name) for name in changed)
    sql = f"UPDATE {change.table} SET {settings} WHERE {_where(change.table)}"
    execute(connection, sql, **parameters, **_key_parameters(change))


def _setting(name: str) -> str:
    if name == "access_count":
        return "access_count = :was_access_count + access_count - :then_access_count"
    if name == "accessed_at":
        return "accessed_at = CASE accessed_at WHEN :then_accessed_at THEN :was_accessed_at ELSE accessed_at END"
    return f"{name} = :was_{name}"


def _insert_removed(connection: Connection, removed: Sequence[CurationChange]) -> None:
    images = {
        table: [_as_stored(change) for change in removed if change.table == table and change.before]
        for table in _RECORDED
    }
    images["chunks_vec"] = usable_vectors(connection, images["chunks"], images["chunks_vec"])
    for table, rows in images.items():
        for row in rows:
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            # A tag may exist again already, or its chunk be gone.
            ignored = "OR IGNORE " if table == _DERIVED_TABLE else ""
            chunk = " WHERE EXISTS (SELECT 1 FROM chunks WHERE id = :chunk_id)" if table == _DERIVED_TABLE else ""
            execute(connection, f"INSERT {ignored}INTO {table} ({names}) SELECT {values}{chunk}", **row)
    add_to_indexes(connection, images["chunks"], images["chunks_vec"])


def _as_stored(change: CurationChange) -> dict[str, Any]:
    row = dict(change.before or {})
    for name in _RECORDED[change.table].blobs:
        row[name] = bytes.fromhex(row[name])
    return row


def _remaining_memories(changes: Sequence[CurationChange]) -> list[CurationChange]:
    """Return the changes of memories that existed after the entry."""
    return [change for change in changes if change.table == "memories" and change.after]


def _refuse_orphans(
    connection: Connection, entry: CurationEntry, changes: Sequence[CurationChange], prefix: str
) -> None:
    """Raise `Conflict` when a restored row belongs to a session, message or memory that was deleted since."""
    for table in _REFERRING:
        keys = [_key(change)[0] for change in changes if change.table == table and change.before is not None]
        if keys and execute(connection, _orphans(table), keys=keys).scalar() is not None:
            raise _cannot(prefix, entry, f"what its {table.replace('_', ' ')} belong to was deleted")


def _orphans(name: str) -> str:
    """Return SQL for an agent's rows that refer to rows which are gone or belong to another agent by now."""
    table = TABLES[name]
    missing = [
        f"t.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {target} AS o"
        f" WHERE o.{TABLES[target].key[-1]} = t.{column} AND o.agent_id = t.agent_id)"
        for column, target in table.refers.items()
    ]
    return f"SELECT 1 FROM {name} AS t WHERE t.{table.key[-1]} IN {listed('keys')} AND ({' OR '.join(missing)})"


def _where(table: str) -> str:
    return " AND ".join(f"{name} = :{name}" for name in TABLES[table].key)


def _key_parameters(change: CurationChange) -> dict[str, object]:
    return dict(zip(TABLES[change.table].key, _key(change), strict=True))


def _cannot(prefix: str, entry: CurationEntry, why: str, later: int | None = None) -> Conflict:
    first = f"; undo entry {prefix}{later} first" if later is not None else ""
    return Conflict(f"entry {prefix}{entry.id} cannot be undone: {why}{first}", field="id")


Row = dict[str, Any]


def usable_vectors(connection: Connection, chunks: Sequence[Row], vectors: Sequence[Row]) -> list[Row]:
    """Return the vectors to restore, without those whose model has no index.

    A chunk without a vector of the active model gets none at all, and is marked to be embedded again.
    """
    index = SearchIndex(connection)
    active = index.active("vector")
    known = {generation.model for generation in index.generations() if generation.kind == "vector"}
    have = {row["chunk_id"] for row in vectors if active is not None and row["model"] == active.model}
    for row in chunks:
        if row["id"] not in have:
            row["embedded_at"] = row["indexed_at"] = None
    return [row for row in vectors if row["chunk_id"] in have and row["model"] in known]


def add_to_indexes(connection: Connection, chunks: Sequence[Row], vectors: Sequence[Row]) -> None:
    """Add the vectors of chunks that were indexed to every index of their model."""
    chunk_of = {row["id"]: row for row in chunks}
    index = SearchIndex(connection)
    active, next_model = index.active("vector"), index.changing()
    for row in vectors:
        chunk = chunk_of[row["chunk_id"]]
        entry = VectorEntry(chunk["id"], chunk["agent_id"], row["embedding"])
        if next_model is not None and row["model"] == next_model.model:
            index.fill_vectors(next_model, [entry])
        elif active is not None and row["model"] == active.model and chunk["indexed_at"] is not None:
            index.add_vectors([entry])
