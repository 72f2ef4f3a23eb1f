"""Translate the operations of LangGraph's stores to those of items, and the outcomes back.

What a store needs of its index and its time to live is decided here, so that the blocking and the asynchronous store do
the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import msgspec
from langgraph.store.base import (
    Embeddings,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)

from reverie.items import types
from reverie.items.calls import (
    MAX_OPERATIONS,
    Distance,
    GetOperation,
    ItemOperation,
    NamespacesOperation,
    PutOperation,
    SearchOperation,
)
from reverie.items.checks import MAX_DEPTH, MAX_VECTORS, OPERATORS

# Below the 4 MiB that a server takes by default.
_PART_BYTES: Final = 3 * 1024 * 1024
# The names that LangGraph's databases take in a filter.
_FILTER_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]+")
_LARGEST: Final = 1.7976931348623157e308
# Whole numbers beyond it are not exact in JSON.
_EXACT: Final = 2**53


class StoreIndex:
    """Which texts of a value are searched by meaning, and who embeds them: the server, or the caller's embedder."""

    def __init__(self, config: IndexConfig | Literal[False] | None) -> None:
        self.config: dict[str, Any] | None = dict(config) if config else None
        self.is_off = config is False
        given = self.config or {}
        self.embeddings: Embeddings | None = ensure_embeddings(given["embed"]) if given.get("embed") else None
        fields = given.get("fields") or given.get("text_fields")
        self.fields: list[str] | None = [fields] if isinstance(fields, str) else (list(fields) if fields else None)
        self.distance = cast(Distance, given.get("distance_type", "cosine"))
        if self.distance not in ("cosine", "l2", "inner_product"):
            raise ValueError(f"distance_type is {self.distance!r}; it must be cosine, l2 or inner_product")

    def paths(self, op: PutOp) -> list[str] | None:
        """Return the paths of a put: none for no index, None for the server's default."""
        if self.is_off or op.index is False:
            return []
        return self.fields if op.index is None else list(op.index)

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of a put that the caller's embedder embeds."""
        paths = self.paths(op)
        found = [text for path in (["$"] if paths is None else paths) for text in get_text_at_path(op.value, path)]
        return found[:MAX_VECTORS]


class TimeToLive:
    """How long items live, as LangGraph's databases read their configuration."""

    def __init__(self, config: TTLConfig | None) -> None:
        self.config = config
        self.refreshes = bool(config and config.get("refresh_on_read", False))
        self.shows_expired = not (config and config.get("omit_expired", False))

    def interval_minutes(self, given: float | None) -> float:
        """Return how often expired items are removed."""
        return float(given or (self.config or {}).get("sweep_interval_minutes") or 5)


@dataclass(slots=True)
class Batch:
    """Operations to be sent, by the place of each in the caller's batch; and what is to be embedded before."""

    size: int
    # The places of searches and listings that find nothing, and are not sent.
    empty: set[int] = field(default_factory=set)
    operations: dict[int, ItemOperation] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    queries: dict[int, str] = field(default_factory=dict)

    def flat_texts(self) -> list[str]:
        """Return the texts of all puts that the caller's embedder embeds."""
        return [text for texts in self.texts.values() for text in texts]

    def set_vectors(self, vectors: Sequence[Sequence[float]], query_vectors: Sequence[Sequence[float]]) -> None:
        """Put the vectors of `flat_texts` and of the queries into their operations."""
        remaining = iter(vectors)
        for place, texts in self.texts.items():
            own = [list(map(float, next(remaining))) for _ in texts]
            self.operations[place] = msgspec.structs.replace(self.operations[place], vectors=own)
        for place, vector in zip(self.queries, query_vectors, strict=True):
            found = list(map(float, vector))
            self.operations[place] = msgspec.structs.replace(self.operations[place], query_vector=found)

    def parts(self) -> Iterable[dict[int, ItemOperation]]:
        """Yield the operations in parts that a server takes: all reads before the first write."""
        part: dict[int, ItemOperation] = {}
        size = 0
        for place in sorted(self.operations, key=lambda place: isinstance(self.operations[place], PutOperation)):
            operation = self.operations[place]
            more = len(msgspec.json.encode(operation))
            if part and (len(part) == MAX_OPERATIONS or size + more > _PART_BYTES):
                yield part
                part, size = {}, 0
            part[place] = operation
            size += more
        if part:
            yield part


def to_batch(ops: Iterable[Op], index: StoreIndex, ttl: TimeToLive) -> Batch:
    """Return the operations of a batch. Raises `InvalidNamespaceError`, and `ValueError` for an invalid filter."""
    listed = list(ops)
    batch = Batch(len(listed))
    last_puts = {(op.namespace, op.key): place for place, op in enumerate(listed) if isinstance(op, PutOp)}
    for place, op in enumerate(listed):
        validate_op_namespace(op)
        match op:
            case GetOp():
                batch.operations[place] = GetOperation(
                    namespace=op.namespace,
                    key=op.key,
                    refresh_ttl=op.refresh_ttl and ttl.refreshes,
                    expired=ttl.shows_expired,
                )
            case PutOp():
                if last_puts[op.namespace, op.key] == place:
                    _add_put(batch, place, op, index)
            case SearchOp():
                _add_search(batch, place, op, index, ttl)
            case ListNamespacesOp():
                _add_listing(batch, place, op, ttl)
            case _:
                raise ValueError(f"unknown operation {type(op).__name__}")
    return batch


def to_result(operation: ItemOperation, outcome: types.ItemOutcome) -> Result:
    """Return an outcome as LangGraph's stores return it."""
    if isinstance(operation, SearchOperation):
        return [] if outcome.found is None else [_search_item(item) for item in outcome.found.items]
    if isinstance(operation, NamespacesOperation):
        return [tuple(namespace) for namespace in outcome.namespaces or ()]
    return None if outcome.item is None else _item(outcome.item)


def _add_put(batch: Batch, place: int, op: PutOp, index: StoreIndex) -> None:
    if op.value is None:
        batch.operations[place] = PutOperation(namespace=op.namespace, key=op.key)
        return
    own = index.embeddings is not None
    batch.operations[place] = PutOperation(
        namespace=op.namespace,
        key=op.key,
        value=dict(op.value),
        ttl_seconds=None if op.ttl is None else op.ttl * 60,
        index=[] if own else index.paths(op),
    )
    if own and (texts := index.texts(op)):
        batch.texts[place] = texts


def _add_search(batch: Batch, place: int, op: SearchOp, index: StoreIndex, ttl: TimeToLive) -> None:
    conditions = _conditions(op.filter or {})
    if conditions is None or op.limit <= 0:
        batch.empty.add(place)
        return
    own = index.embeddings is not None
    batch.operations[place] = SearchOperation(
        namespace=op.namespace_prefix,
        query="" if own or index.is_off else op.query or "",
        filter=conditions,
        limit=op.limit,
        offset=op.offset,
        refresh_ttl=op.refresh_ttl and ttl.refreshes,
        expired=ttl.shows_expired,
        distance=index.distance,
    )
    if own and op.query:
        batch.queries[place] = op.query


def _add_listing(batch: Batch, place: int, op: ListNamespacesOp, ttl: TimeToLive) -> None:
    wanted: dict[str, tuple[str, ...]] = {}
    for condition in op.match_conditions or ():
        if condition.match_type not in ("prefix", "suffix"):
            raise ValueError(f"unknown match type {condition.match_type!r}; it must be prefix or suffix")
        if condition.match_type in wanted:
            raise ValueError(f"a listing takes one {condition.match_type}, not several")
        wanted[condition.match_type] = tuple(condition.path)
    if op.limit <= 0:
        batch.empty.add(place)
        return
    batch.operations[place] = NamespacesOperation(
        prefix=wanted.get("prefix", ()),
        suffix=wanted.get("suffix", ()),
        max_depth=None if op.max_depth is None else min(op.max_depth, MAX_DEPTH),
        limit=op.limit,
        offset=op.offset,
        expired=ttl.shows_expired,
    )


def _conditions(conditions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a filter as JSON can hold it; None if nothing fits it, as nothing compares with NaN.

    Raises `ValueError` for a name or an operator that LangGraph's databases refuse.
    """
    found: dict[str, Any] = {}
    for key, condition in conditions.items():
        if not _FILTER_KEY.fullmatch(key):
            raise ValueError(
                f"Invalid filter key: {key[:80]!r}. It may have letters, digits, underscores, full stops and hyphens"
            )
        if isinstance(condition, Mapping) and any(str(name).startswith("$") for name in condition):
            unknown = next((name for name in condition if name not in OPERATORS), None)
            if unknown is not None:
                raise ValueError(f"Unsupported operator: {unknown}. Known are {', '.join(OPERATORS)}")
            found[key] = {name: _comparable(value) for name, value in condition.items()}
            wanted = list(found[key].values())
        else:
            found[key] = _comparable(condition)
            wanted = [found[key]]
        if any(isinstance(value, float) and math.isnan(value) for value in wanted):
            return None
    return found


def _comparable(value: Any) -> Any:
    """Return a number that JSON can hold: the largest one in place of infinity, and of a whole number beyond it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, int) and abs(value) < _EXACT:
        return value
    try:
        return math.copysign(min(abs(float(value)), _LARGEST), value) if not math.isnan(value) else value
    except OverflowError:
        return math.copysign(_LARGEST, value)


def _item(item: types.Item) -> Item:
    return Item(
        namespace=tuple(item.namespace),
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _search_item(item: types.FoundItem) -> SearchItem:
    return SearchItem(
        namespace=tuple(item.namespace),
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=item.score,
    )
