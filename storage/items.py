"""Items of one agent and one of its users: each JSON value under its namespace and key.

A namespace is stored as the text of a JSON array. The namespaces below a prefix are a range of these texts: `["a","b"`
is followed by a comma in all of them. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from storage.catalogue import ITEMS_TO_EMBED
from storage.engines import Connection
from storage.repository import AgentRepository, Repository
from storage.rows import from_json, select_list, stream_rows, to_json

# The model of vectors that callers made themselves.
OWN_MODEL: Final = "own"
_EVERYTHING: Final = 2**62
_PAGE_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item; `value` is decoded."""

    row_id: int
    namespace: list[str]
    key: str
    value: Any
    created_at: int
    updated_at: int
    expires_at: int | None
    ttl_seconds: float | None
    is_indexed: bool
    embedding_model: str | None


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be stored, with its vectors: float32, little-endian. Without a model it waits to be embedded."""

    namespace: Sequence[str]
    key: str
    value: Any
    ttl_seconds: float | None
    index_fields: Sequence[str] | None
    embedding_model: str | None
    vectors: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """An item that is to be embedded."""

    row_id: int
    value: Any
    index_fields: list[str]
    stored_at: int


_COLUMNS: Final = select_list(ItemRow, is_indexed="index_fields IS NOT NULL")
_OF_OTHER_MODELS: Final = "index_fields IS NOT NULL AND embedding_model IS NOT NULL AND embedding_model <> :model"
_OWN: Final = "agent_id = :agent AND coalesce(user_id, '') = :user"
_BELOW: Final = "(namespace = :exactly OR namespace >= :from_text AND namespace < :to_text)"
_ALIVE: Final = "(expires_at IS NULL OR expires_at > :alive_at)"
_PUT: Final = f"""
    INSERT INTO items (agent_id, user_id, namespace, key, value, created_at, updated_at, stored_at, ttl_seconds,
        expires_at, index_fields, embedding_model)
    VALUES (:agent, nullif(:user, ''), :namespace, :key, :value, :now, :now, :now, :ttl_seconds, :expires_at,
        :index_fields, :embedding_model)
    ON CONFLICT (agent_id, coalesce(user_id, ''), namespace, key) DO UPDATE SET value = excluded.value,
        updated_at = excluded.updated_at, stored_at = excluded.stored_at, ttl_seconds = excluded.ttl_seconds,
        expires_at = excluded.expires_at, index_fields = excluded.index_fields,
        embedding_model = excluded.embedding_model
    RETURNING {_COLUMNS}
"""


class Items(AgentRepository):
    """The items of one agent within one transaction; `of` limits them to the items of a user, or to the agent's own."""

    def __init__(self, connection: Connection, agent: str) -> None:
        super().__init__(connection, agent)
        self._bound = {**self._bound, "user": ""}

    def of(self, user: str | None) -> Items:
        """Return the items of one user, None for those of the agent itself."""
        self._bound = {**self._bound, "user": user or ""}
        return self

    def get(self, namespace: Sequence[str], key: str, *, alive_at: int | None) -> ItemRow | None:
        """Return an item, None if there is none or it expired before `alive_at`."""
        return self._record(
            ItemRow,
            f"SELECT {_COLUMNS} FROM items WHERE {_OWN} AND namespace = :namespace AND key = :key AND {_ALIVE}",
            namespace=to_json(namespace),
            key=key,
            alive_at=_or_never(alive_at),
        )

    def put(self, item: NewItem, *, now: int) -> ItemRow:
        """Store an item with its vectors, in place of the item under its key, whose `created_at` it keeps."""
        expires_at = None if item.ttl_seconds is None else now + round(item.ttl_seconds * 1_000_000)
        row = self._record(
            ItemRow,
            _PUT,
            namespace=to_json(item.namespace),
            key=item.key,
            value=msgspec.json.encode(item.value).decode(),
            now=now,
            ttl_seconds=item.ttl_seconds,
            expires_at=expires_at,
            index_fields=None if item.index_fields is None else list(item.index_fields),
            embedding_model=item.embedding_model,
        )
        assert row is not None
        self._execute("DELETE FROM item_vectors WHERE item_row = :row", row=row.row_id)
        # The value before it may have failed, or is being embedded.
        self._execute("DELETE FROM claims WHERE stage = 'items' AND item_id = :row", row=row.row_id)
        add_vectors(self, row.row_id, item.vectors)
        return row

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete an item; False if there was none."""
        sql = f"DELETE FROM items WHERE {_OWN} AND namespace = :namespace AND key = :key"
        return self._execute(sql, namespace=to_json(namespace), key=key).rowcount > 0

    def newest(self, prefix: Sequence[str], *, alive_at: int | None, limit: int, offset: int) -> list[ItemRow]:
        """Return the items below a prefix, those put last first."""
        return self._records(
            ItemRow,
            f"{self._select_below()} LIMIT :limit OFFSET :offset",
            **_below(prefix, alive_at),
            limit=limit,
            offset=offset,
        )

    def all_newest(self, prefix: Sequence[str], *, alive_at: int | None) -> Iterator[ItemRow]:
        """Return an iterator over the items below a prefix, the last put first. Rows are read as they are needed."""
        return stream_rows(self._stream(self._select_below(), **_below(prefix, alive_at)), ItemRow)

    def rows(self, row_ids: Sequence[int]) -> list[ItemRow]:
        """Return the items of these rows, in any order."""
        sql = f"SELECT {_COLUMNS} FROM items WHERE {_OWN} AND row_id IN (SELECT value FROM json_each(:rows))"
        return self._records(ItemRow, sql, rows=row_ids)

    def vectors(
        self, prefix: Sequence[str], *, model: str, alive_at: int | None
    ) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Yield the vectors of a model of the items below a prefix, in pages, each with its item's row."""
        sql = (
            "SELECT v.item_row, v.embedding FROM items CROSS JOIN item_vectors AS v ON v.item_row = items.row_id"
            f" WHERE {_OWN} AND {_BELOW} AND {_ALIVE} AND embedding_model = :model"
        )
        for page in self._pages(sql, _PAGE_ROWS, **_below(prefix, alive_at), model=model):
            yield [(int(row[0]), bytes(row[1])) for row in page]

    def namespaces(self, prefix: Sequence[str], *, alive_at: int | None) -> list[list[str]]:
        """Return the different namespaces below a prefix that hold items."""
        sql = f"SELECT DISTINCT namespace FROM items WHERE {_OWN} AND {_BELOW} AND {_ALIVE}"
        return [from_json(text) for text in self._values(sql, **_below(prefix, alive_at))]

    def refresh(self, row_ids: Sequence[int], *, now: int) -> None:
        """Begin the time to live of these items anew."""
        self._execute(
            "UPDATE items SET expires_at = :now + CAST(ttl_seconds * 1000000 AS INTEGER)"
            f" WHERE {_OWN} AND ttl_seconds IS NOT NULL AND row_id IN (SELECT value FROM json_each(:rows))",
            rows=row_ids,
            now=now,
        )

    def remove_expired(self, *, now: int, limit: int) -> int:
        """Delete items that have expired, at most `limit`; returns how many."""
        return self._execute(
            "DELETE FROM items WHERE row_id IN (SELECT row_id FROM items"
            f" WHERE {_OWN} AND expires_at IS NOT NULL AND expires_at <= :now LIMIT :limit)",
            now=now,
            limit=limit,
        ).rowcount

    def _select_below(self) -> str:
        return (
            f"SELECT {_COLUMNS} FROM items WHERE {_OWN} AND {_BELOW} AND {_ALIVE} ORDER BY updated_at DESC, row_id DESC"
        )


class WaitingItems(Repository):
    """Items of all agents that are to be embedded, within one transaction: for the workers that have the model."""

    def any_of_other_models(self, model: str) -> bool:
        """Return whether there are items with vectors of a different model."""
        return self._value(f"SELECT 1 FROM items WHERE {_OF_OTHER_MODELS} LIMIT 1", model=model) is not None

    def rows(self, row_ids: Sequence[int]) -> list[WaitingItem]:
        """Return those of these items that still wait, in their order."""
        return self._records(
            WaitingItem,
            f"SELECT row_id, value, index_fields, stored_at FROM items WHERE {ITEMS_TO_EMBED}"
            " AND row_id IN (SELECT value FROM json_each(:rows)) ORDER BY row_id",
            rows=row_ids,
        )

    def put_vectors(self, item: WaitingItem, vectors: Sequence[bytes], *, model: str) -> bool:
        """Store the vectors of an item, unless it was put again meanwhile; returns whether they were stored."""
        changed = self._execute(
            "UPDATE items SET embedding_model = :model WHERE row_id = :row AND stored_at = :stored_at"
            f" AND {ITEMS_TO_EMBED}",
            model=model,
            row=item.row_id,
            stored_at=item.stored_at,
        ).rowcount
        if changed:
            add_vectors(self, item.row_id, vectors)
        return changed > 0

    def wait_again(self, model: str) -> None:
        """Make items with vectors of another model than this wait to be embedded again."""
        values = {"model": model}
        rows = f"SELECT row_id FROM items WHERE {_OF_OTHER_MODELS}"
        self._execute(f"DELETE FROM item_vectors WHERE item_row IN ({rows})", **values)
        self._execute(f"UPDATE items SET embedding_model = NULL WHERE {_OF_OTHER_MODELS}", **values)


def add_vectors(rows: Repository, item_row: int, vectors: Sequence[bytes]) -> None:
    """Add vectors to an item."""
    rows._execute_many(
        "INSERT INTO item_vectors (item_row, embedding) VALUES (:row, :embedding)",
        [{"row": item_row, "embedding": vector} for vector in vectors],
    )


def _below(prefix: Sequence[str], alive_at: int | None) -> dict[str, Any]:
    exactly = to_json(prefix)
    begin = exactly[:-1]
    # A longer array has a comma there; "-" is the next character. Every namespace is below an empty prefix.
    bounds = (f"{begin},", f"{begin}-") if prefix else ("[", "\\")
    return {"exactly": exactly, "from_text": bounds[0], "to_text": bounds[1], "alive_at": _or_never(alive_at)}


def _or_never(alive_at: int | None) -> int:
    return -_EVERYTHING if alive_at is None else alive_at
