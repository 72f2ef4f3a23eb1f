"""Operations on items: put, get, search, list and delete, one by one or as a batch.

Nothing is embedded inside a transaction. The writes of a batch are one transaction, after all its reads. A search by
meaning compares all vectors below the namespace exactly; without a query the newest come first.

Filters are those of LangGraph's stores: they name fields and what they must be, a value, or operators such as `{"$gte":
3}`. A field of the value comes first; otherwise the parts of the name between full stops lead to a field further in. A
missing field counts as null, and is neither larger, smaller nor different from anything, as in SQL.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, to_blob
from memory.conversion import convert
from memory.items.embedding import WHOLE, vectors_at_once
from reverie.errors import NotFound, Permanent, Rejected, Transient
from reverie.items import (
    Distance,
    FoundItem,
    FoundItems,
    GetItem,
    GetOperation,
    Item,
    ItemOperation,
    ItemOutcome,
    ListItemNamespaces,
    NamespacesOperation,
    PutItem,
    PutOperation,
    SearchItems,
    SearchOperation,
)
from storage.items import OWN_MODEL, ItemRow, Items, NewItem
from storage.stores import Store

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def fits(value: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Return whether a value fits all conditions. The operators must be known: see `reverie.items`."""
    return all(_holds(_field(value, name), condition) for name, condition in conditions.items())


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping) and name in value:
        return value[name]
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _holds(found: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_compares(found, name, wanted) for name, wanted in condition.items())
        return isinstance(found, Mapping) and fits(found, condition)
    return _equals(found, condition)


def _compares(found: Any, name: str, wanted: Any) -> bool:
    if name == "$eq":
        return _equals(found, wanted)
    if name == "$ne":
        return found is not None and not _equals(found, wanted)
    compare = _ORDERS[name]
    if isinstance(wanted, str):
        return isinstance(found, str) and compare(found, wanted)
    first, second = _number(found), _number(wanted)
    return first is not None and second is not None and compare(first, second)


def _equals(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return (
            isinstance(found, Sequence)
            and not isinstance(found, str)
            and len(found) == len(wanted)
            and all(_holds(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)


def _number(value: Any) -> float | None:
    """Return a number, or the number that a text is; None for anything else."""
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


# Stands for any one label.
WILDCARD: Final = "*"


def fixed_part(prefix: Sequence[str]) -> list[str]:
    """Return the labels of a prefix before its first wildcard: what a database can look up."""
    return list(takewhile(lambda label: label != WILDCARD, prefix))


def select_namespaces(
    namespaces: Iterable[Sequence[str]], *, prefix: Sequence[str], suffix: Sequence[str], max_depth: int | None
) -> list[list[str]]:
    """Return the namespaces that fit a prefix and a suffix, cut to `max_depth` labels, each once and in order."""
    found = {
        tuple(namespace[:max_depth])
        for namespace in namespaces
        if _begins_with(namespace, prefix) and _begins_with(namespace[::-1], suffix[::-1])
    }
    return [list(namespace) for namespace in sorted(found)]


def _begins_with(labels: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(labels) >= len(pattern) and all(
        wanted in (WILDCARD, label) for label, wanted in zip(labels, pattern, strict=False)
    )


# Items read at a time, in the order of their scores.
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query as a vector, and the model whose vectors it is compared with; `degraded` says why there is no vector."""

    vector: NDArray[np.float32] | None = None
    model: str = ""
    distance: Distance = "cosine"
    degraded: str = ""

    def misses(self, row: ItemRow) -> bool:
        """Return whether an item should be found by meaning but has no vectors of the query's model."""
        return row.is_indexed and row.embedding_model != self.model and self.model != OWN_MODEL


def query_vector(
    embedder: Embedder | None, query: str, own: Sequence[float] | None, distance: Distance
) -> QueryVector | None:
    """Return a query as a vector: the caller's own vector, or one made by the embedder; None without a query.

    Call it outside any transaction: an embedder may be slow.
    """
    if own is not None:
        return QueryVector(np.asarray(own, dtype="<f4"), OWN_MODEL, distance)
    if not query.strip():
        return None
    if embedder is None:
        return QueryVector(degraded="not searched by meaning: no embedder is configured")
    try:
        embedder.load()
        return QueryVector(np.asarray(embedder.embed_query(query), dtype="<f4"), embedder.model)
    except (Transient, Permanent) as error:
        return QueryVector(degraded=f"not searched by meaning: {error}")


def search_rows(
    items: Items, search: SearchItems | SearchOperation, query: QueryVector | None, alive_at: int | None
) -> list[tuple[ItemRow, float | None]]:
    """Return the items that fit, each with its score. Raises `Rejected` for a vector of another length.

    Items that expired before `alive_at` (microseconds) are left out.
    """
    if query is None or query.vector is None:
        if not search.filter:
            rows = items.newest(search.namespace, alive_at=alive_at, limit=search.limit, offset=search.offset)
            return [(row, None) for row in rows]
        found: Iterator[tuple[ItemRow, float | None]] = (
            (row, None) for row in items.all_newest(search.namespace, alive_at=alive_at)
        )
    else:
        found = _by_score(items, search.namespace, query, alive_at)
    fitting = (one for one in found if fits(one[0].value, search.filter))
    return list(islice(fitting, search.offset, search.offset + search.limit))


def _by_score(
    items: Items, prefix: Sequence[str], query: QueryVector, alive_at: int | None
) -> Iterator[tuple[ItemRow, float | None]]:
    """Yield the items with vectors, best first, and then those without, newest first."""
    scores = _scores(items, prefix, query, alive_at)
    ranked = sorted(scores, key=lambda row_id: (-scores[row_id], -row_id))
    for first in range(0, len(ranked), _PAGE):
        page = ranked[first : first + _PAGE]
        rows = {row.row_id: row for row in items.rows(page)}
        yield from ((rows[row_id], scores[row_id]) for row_id in page if row_id in rows)
    others = items.all_newest(prefix, alive_at=alive_at)
    yield from ((row, None) for row in others if row.row_id not in scores)


def _scores(items: Items, prefix: Sequence[str], query: QueryVector, alive_at: int | None) -> dict[int, float]:
    """Return the best score of each item below the prefix that has vectors."""
    assert query.vector is not None
    scores: dict[int, float] = {}
    for page in items.vectors(prefix, model=query.model, alive_at=alive_at):
        blobs = [blob for _, blob in page]
        if any(len(blob) != query.vector.nbytes for blob in blobs):
            dimension = len(next(blob for blob in blobs if len(blob) != query.vector.nbytes)) // 4
            raise Rejected(
                f"query_vector has {query.vector.size} numbers; items below this namespace have vectors of {dimension}",
                field="query_vector",
            )
        matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), -1)
        for (row_id, _), score in zip(page, _similarities(matrix, query), strict=True):
            scores[row_id] = max(score, scores.get(row_id, -np.inf))
    return scores


def _similarities(matrix: NDArray[np.float32], query: QueryVector) -> list[float]:
    """Return how similar each row is to the query: a higher number is more similar, whatever the distance."""
    assert query.vector is not None
    if query.distance == "l2":
        compared = -np.linalg.norm(matrix - query.vector, axis=1)
    else:
        compared = matrix @ query.vector
        if query.distance == "cosine":
            lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query.vector)
            compared = np.divide(compared, lengths, out=np.zeros_like(compared), where=lengths > 0)
    numbers: list[float] = compared.tolist()
    return numbers


# Items removed in one transaction: some milliseconds under the write lock.
_SWEEP_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class ItemsOf:
    """The items of one user of an agent, or of the agent itself, in a store; and the embedder of that store.

    `now` is in microseconds.
    """

    store: Store
    agent: str
    user: str | None
    embedder: Embedder | None
    now: int

    def put(self, puts: Sequence[PutItem | PutOperation]) -> tuple[list[ItemRow], bool]:
        """Store items in one transaction, and delete those whose value is None.

        Returns the stored items, and whether some of them wait to be embedded. The last put of an item counts.
        """
        last = list({(tuple(put.namespace), put.key): put for put in puts}.values())
        new = self._new_items([put for put in last if put.value is not None])
        stored: list[ItemRow] = []
        with self.store.writing() as tx:
            items = tx.for_agent(self.agent).items.of(self.user)
            for put in last:
                if put.value is None:
                    items.delete(put.namespace, put.key)
            stored += [items.put(item, now=self.now) for item in new]
        return stored, any(item.embedding_model is None and item.index_fields for item in new)

    def get(self, gets: Sequence[GetItem | GetOperation]) -> list[ItemRow | None]:
        """Return items, None for each that does not exist or has expired."""
        with self.store.reading() as tx:
            items = tx.for_agent(self.agent).items.of(self.user)
            found = [items.get(get.namespace, get.key, alive_at=self._alive_at(get.expired)) for get in gets]
        return self._refreshed(found, [get.refresh_ttl for get in gets])

    def search(self, call: SearchItems | SearchOperation) -> FoundItems:
        """Return the items that a search finds. Raises `Rejected` for a vector of another length."""
        query = query_vector(self.embedder, call.query, call.query_vector, call.distance)
        with self.store.reading() as tx:
            items_of_user = tx.for_agent(self.agent).items.of(self.user)
            found = search_rows(items_of_user, call, query, self._alive_at(call.expired))
        rows = self._refreshed([row for row, _ in found], [call.refresh_ttl] * len(found))
        items = [convert(row, FoundItem, score=score) for row, (_, score) in zip(rows, found, strict=True) if row]
        degraded = query.degraded if query is not None else ""
        if query is not None and any(query.misses(row) for row, _ in found):
            degraded = degraded or "the last items have no vectors yet: they are compared later"
        return FoundItems(items=items, degraded=degraded)

    def namespaces(self, call: ListItemNamespaces | NamespacesOperation) -> list[list[str]]:
        """Return the namespaces that hold items and fit, in order."""
        with self.store.reading() as tx:
            items = tx.for_agent(self.agent).items.of(self.user)
            present = items.namespaces(fixed_part(call.prefix), alive_at=self._alive_at(call.expired))
        found = select_namespaces(present, prefix=call.prefix, suffix=call.suffix, max_depth=call.max_depth)
        return found[call.offset : call.offset + call.limit]

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete an item; False if there was none."""
        with self.store.writing() as tx:
            return tx.for_agent(self.agent).items.of(self.user).delete(namespace, key)

    def sweep(self) -> int:
        """Remove expired items in short transactions; returns how many."""
        removed = 0
        while True:
            with self.store.writing() as tx:
                found = tx.for_agent(self.agent).items.of(self.user).remove_expired(now=self.now, limit=_SWEEP_BATCH)
            removed += found
            if found < _SWEEP_BATCH:
                return removed

    def batch(self, operations: Sequence[ItemOperation]) -> tuple[list[ItemOutcome], bool]:
        """Carry out operations, the reads first; returns their outcomes, and whether items wait to be embedded."""
        gets = [operation for operation in operations if isinstance(operation, GetOperation)]
        got = iter(self.get(gets) if gets else ())
        outcomes = []
        for operation in operations:
            match operation:
                case GetOperation():
                    row = next(got)
                    outcomes.append(ItemOutcome(item=None if row is None else convert(row, Item)))
                case SearchOperation():
                    outcomes.append(ItemOutcome(found=self.search(operation)))
                case NamespacesOperation():
                    outcomes.append(ItemOutcome(namespaces=self.namespaces(operation)))
                case PutOperation():
                    outcomes.append(ItemOutcome())
        puts = [operation for operation in operations if isinstance(operation, PutOperation)]
        return outcomes, bool(puts) and self.put(puts)[1]

    def _new_items(self, puts: Sequence[PutItem | PutOperation]) -> list[NewItem]:
        """Return the items of puts with their vectors."""
        paths = [None if put.vectors is not None else (put.index if put.index is not None else [WHOLE]) for put in puts]
        indexed = [(put.value or {}, path) for put, path in zip(puts, paths, strict=True) if path]
        embedded = iter(vectors_at_once(self.embedder, indexed))
        found = []
        for put, path in zip(puts, paths, strict=True):
            computed = next(embedded) if path else None
            model, vectors = (
                (None, []) if computed is None or self.embedder is None else (self.embedder.model, computed)
            )
            if put.vectors is not None:
                model, vectors = OWN_MODEL, [to_blob(vector) for vector in put.vectors]
            fields = list(path) if path else None
            found.append(NewItem(put.namespace, put.key, put.value, put.ttl_seconds, fields, model, vectors))
        return found

    def _refreshed(self, rows: Sequence[ItemRow | None], wanted: Sequence[bool]) -> list[ItemRow | None]:
        """Restart the time to live of the items for which that is wanted; return all items as they are afterwards."""
        due = [
            row.row_id
            for row, refresh in zip(rows, wanted, strict=True)
            if row is not None and refresh and row.ttl_seconds is not None
        ]
        if not due:
            return list(rows)
        with self.store.writing() as tx:
            items: Items = tx.for_agent(self.agent).items.of(self.user)
            items.refresh(due, now=self.now)
            changed = {row.row_id: row for row in items.rows(due)}
        return [row if row is None else changed.get(row.row_id, row) for row in rows]

    def _alive_at(self, expired: bool) -> int | None:
        return None if expired else self.now


def read_item(items: ItemsOf | None, call: GetItem) -> Item:
    """Return an item. Raises `NotFound`."""
    row = items.get([call])[0] if items is not None else None
    if row is None:
        raise NotFound(f"there is no item {call.key!r} in namespace {list(call.namespace)!r}", field="key")
    return convert(row, Item)
