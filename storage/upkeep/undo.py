"""Undo an entry of the curation log: every row it changed becomes what it was, in every index too.

What a reader counts (accesses) and what the pipeline makes of a memory (chunks, tags on them) goes on after a job and
is no reason to refuse; anything else that was changed since is. All of it happens in the caller's transaction, or none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, exc, text

from reverie.errors import Conflict
from storage.upkeep.curation import CurationEntry, CurationLog, RowChange
from storage.upkeep.undo_chunks import end_claims, give_own_tags, put_into_indexes, take_chunks_out, usable_vectors

# The key of each table that entries hold, parents first: the order in which rows are put back.
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "sessions": ("row_id",),
    "messages": ("row_id",),
    "memories": ("row_id",),
    "memory_promotions": ("agent_id", "memory_id"),
    "chunks": ("id",),
    "chunk_tags": ("tag", "chunk_id"),
    "chunks_vec": ("chunk_id", "model"),
    "forward_index": ("agent_id", "chunk_id"),
    "recall_events": ("id",),
}
_BLOBS: Final = {"chunks": ("content_hash",), "chunks_vec": ("embedding",), "forward_index": ("words",)}
# Counted by readers: an undo takes back what the job did and leaves what came afterwards.
_COUNTED: Final = frozenset({"access_count", "accessed_at"})
# Written by the pipeline: says nothing of what a memory is.
_DERIVED: Final = frozenset({"chunked_at"})
# What a memory's chunks carry follows from the memory.
_DERIVED_TABLE: Final = "chunk_tags"
# Rows that were put back, but whose session, file, successor or chunk is gone, or is by now somebody else's.
_ORPHANS: Final = {
    "memories": (
        "SELECT 1 FROM memories AS m WHERE m.row_id IN (SELECT value FROM json_each(:keys)) AND ("
        " m.session_row IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM sessions WHERE row_id = m.session_row AND agent_id = m.agent_id)"
        " OR m.superseded_by IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM memories WHERE row_id = m.superseded_by AND agent_id = m.agent_id))"
    ),
    "chunks": (
        "SELECT 1 FROM chunks AS c WHERE c.id IN (SELECT value FROM json_each(:keys)) AND ("
        " c.session_row IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM sessions WHERE row_id = c.session_row AND agent_id = c.agent_id)"
        " OR c.file_row IS NOT NULL AND NOT EXISTS (SELECT 1 FROM files WHERE row_id = c.file_row)"
        " OR c.memory_row IS NOT NULL AND NOT EXISTS (SELECT 1 FROM memories WHERE row_id = c.memory_row))"
    ),
    "recall_events": (
        "SELECT 1 FROM recall_events AS e WHERE e.id IN (SELECT value FROM json_each(:keys))"
        " AND NOT EXISTS (SELECT 1 FROM chunks WHERE id = e.chunk_id)"
    ),
}


def undo(connection: Connection, entry: CurationEntry, *, at: int, prefix: str = "") -> None:
    """Put back what an entry changed and mark it undone; errors name entries with `prefix` before their numbers.

    Raises `Conflict` when it is undone already, when what it changed was changed again (naming the later entry that
    has to be undone first, if there is one), or when what it belongs to is gone. The transaction is to be given up
    then: rows may have been put back in part.
    """
    log = CurationLog(connection)
    if entry.undone_at is not None:
        raise Conflict(f"entry {prefix}{entry.id} is undone already", field="id")
    changes = _whole(log.changes(entry.id))
    for change in changes:
        if not _stands(connection, change):
            later = log.later_entry(entry.id, change.table, dict(_key_parameters(change)))
            raise _cannot(prefix, entry, f"a row of {change.table} was changed since", later)
    _refuse_if_leant_on(connection, log, entry, changes, prefix)
    # A memory and the one that took its place refer to each other in whatever order they are put back.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    try:
        _put_back(connection, changes)
    except exc.IntegrityError as error:
        raise _cannot(prefix, entry, "something else has taken the place of what it removed") from error
    _refuse_orphans(connection, entry, changes, prefix)
    log.mark_undone(entry.id, at=at)


def _whole(changes: Iterable[RowChange]) -> list[RowChange]:
    """One change a row: from what it was before the first to what it became by the last."""
    rows: dict[tuple[object, ...], RowChange] = {}
    for change in changes:
        key = (change.table, *_key(change))
        first = rows.get(key)
        rows[key] = replace(change, before=first.before) if first else change
    return [change for change in rows.values() if change.before != change.after]


def _key(change: RowChange) -> tuple[object, ...]:
    row = change.after or change.before or {}
    return tuple(row[name] for name in _KEYS[change.table])


def _stands(connection: Connection, change: RowChange) -> bool:
    """Whether a row is still as the entry left it, as far as that matters."""
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


def _current(connection: Connection, change: RowChange) -> dict[str, Any] | None:
    image = change.after or change.before or {}
    blobs = _BLOBS.get(change.table, ())
    columns = ", ".join(f"hex({name}) AS {name}" if name in blobs else name for name in image)
    row = connection.execute(
        text(f"SELECT {columns} FROM {change.table} WHERE {_where(change.table)}"), _key_parameters(change)
    ).one_or_none()
    return None if row is None else dict(row._mapping)


def _refuse_if_leant_on(
    connection: Connection, log: CurationLog, entry: CurationEntry, changes: Sequence[RowChange], prefix: str
) -> None:
    """A memory that has taken the place of another since cannot be taken away: that one would go with it."""
    mine = [change.after["row_id"] for change in _kept(changes) if change.after]
    for row in [change.after["row_id"] for change in _kept(changes) if change.after and change.before is None]:
        leaning = connection.execute(
            text(
                "SELECT row_id FROM memories WHERE superseded_by = :row"
                " AND row_id NOT IN (SELECT value FROM json_each(:mine)) LIMIT 1"
            ),
            {"row": row, "mine": json.dumps(mine)},
        ).scalar()
        if leaning is not None:
            later = log.later_entry(entry.id, "memories", {"row_id": leaning})
            what = "what it added has taken the place of another memory since"
            raise _cannot(prefix, entry, what, later)


def _put_back(connection: Connection, changes: Sequence[RowChange]) -> None:
    ranked = sorted(changes, key=lambda change: list(_KEYS).index(change.table))
    # Whose chunks are others now than before: the pipeline has made them since, if any.
    moved = [change for change in changes if change.table == "memories" and _is_moved(change)]
    rows = [change.after["row_id"] for change in moved if change.after]
    take_chunks_out(connection, rows)
    # Out of the way of the one fact that may stand for a category and key.
    connection.execute(
        text("UPDATE memories SET superseded_by = row_id WHERE row_id IN (SELECT value FROM json_each(:rows))"),
        {"rows": json.dumps(rows)},
    )
    for change in ranked:
        if change.before is not None and change.after is not None:
            _restore_columns(connection, change, also=("superseded_by", "chunked_at") if change in moved else ())
    # After that: what was added takes with it whatever still names it as its successor.
    for change in reversed([change for change in ranked if change.before is None]):
        connection.execute(text(f"DELETE FROM {change.table} WHERE {_where(change.table)}"), _key_parameters(change))
    _insert_removed(connection, [change for change in ranked if change.after is None])
    kept_rows = [change.after["row_id"] for change in _kept(changes) if change.after]
    end_claims(connection, kept_rows)
    give_own_tags(connection, kept_rows)


def _is_moved(change: RowChange) -> bool:
    if change.after is None:
        return False
    before = change.before
    return before is None or any(before[name] != change.after[name] for name in ("content", "superseded_by"))


def _restore_columns(connection: Connection, change: RowChange, *, also: Sequence[str]) -> None:
    before, after = change.before or {}, change.after or {}
    changed = [name for name, value in before.items() if after[name] != value or name in also]
    parameters = {f"was_{name}": before[name] for name in changed}
    parameters |= {f"then_{name}": after[name] for name in changed}
    settings = ", ".join(_setting(name) for name in changed)
    connection.execute(
        text(f"UPDATE {change.table} SET {settings} WHERE {_where(change.table)}"),
        {**parameters, **_key_parameters(change)},
    )


def _setting(name: str) -> str:
    if name == "access_count":
        return "access_count = :was_access_count + access_count - :then_access_count"
    if name == "accessed_at":
        return "accessed_at = CASE accessed_at WHEN :then_accessed_at THEN :was_accessed_at ELSE accessed_at END"
    return f"{name} = :was_{name}"


def _insert_removed(connection: Connection, removed: Sequence[RowChange]) -> None:
    images = {
        table: [_as_stored(change) for change in removed if change.table == table and change.before] for table in _KEYS
    }
    images["chunks_vec"] = usable_vectors(connection, images["chunks"], images["chunks_vec"])
    for table, rows in images.items():
        for row in rows:
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            # A tag may have come back by itself, or lost its chunk.
            ignored = "OR IGNORE " if table == _DERIVED_TABLE else ""
            chunk = " WHERE EXISTS (SELECT 1 FROM chunks WHERE id = :chunk_id)" if table == _DERIVED_TABLE else ""
            connection.execute(text(f"INSERT {ignored}INTO {table} ({names}) SELECT {values}{chunk}"), row)
    put_into_indexes(connection, images["chunks"], images["chunks_vec"])


def _as_stored(change: RowChange) -> dict[str, Any]:
    row = dict(change.before or {})
    for name in _BLOBS.get(change.table, ()):
        row[name] = bytes.fromhex(row[name])
    return row


def _kept(changes: Sequence[RowChange]) -> list[RowChange]:
    """The memories that were there after the entry."""
    return [change for change in changes if change.table == "memories" and change.after]


def _refuse_orphans(connection: Connection, entry: CurationEntry, changes: Sequence[RowChange], prefix: str) -> None:
    """What belongs to a session or a message that was forgotten since cannot come back."""
    for table, orphans in _ORPHANS.items():
        keys = [_key(change)[0] for change in changes if change.table == table and change.before is not None]
        if keys and connection.execute(text(orphans), {"keys": json.dumps(keys)}).scalar() is not None:
            raise _cannot(prefix, entry, f"what its {table.replace('_', ' ')} belong to was deleted")


def _where(table: str) -> str:
    return " AND ".join(f"{name} = :{name}" for name in _KEYS[table])


def _key_parameters(change: RowChange) -> dict[str, object]:
    return dict(zip(_KEYS[change.table], _key(change), strict=True))


def _cannot(prefix: str, entry: CurationEntry, why: str, later: int | None = None) -> Conflict:
    first = f"; undo entry {prefix}{later} first" if later is not None else ""
    return Conflict(f"entry {prefix}{entry.id} cannot be undone: {why}{first}", field="id")
