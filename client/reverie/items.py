"""Items: JSON objects that an agent keeps under a namespace and a key. Their types, checks and calls.

An item is returned exactly as it was put. No job merges, decays or prunes it. Each user of an agent has items of their
own; those of a call without a user belong to the agent, and no user's call reaches them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from reverie.calls import OfUser, Resource
from reverie.checks import check_json, check_text
from reverie.errors import Rejected
from reverie.fields import Offset, UserId, check_fields, checked
from reverie.types import Deleted, ListResult


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON object under a namespace and a key; `expires_at` is when its time to live ends, None for never."""

    key: str
    namespace: list[str]
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None


class FoundItem(Item, frozen=True, kw_only=True, omit_defaults=True):
    """An item that a search found; `score` is how similar it is to the query, None if that was not compared."""

    score: float | None = None


class FoundItems(ListResult[FoundItem], frozen=True, kw_only=True, omit_defaults=True):
    """The items that a search found, best first, or newest first without a query.

    `degraded` says why a query was not compared with the items: they are those that match the rest, newest first.
    """

    items: list[FoundItem]
    degraded: str = ""


class NamespaceList(ListResult[list[str]], frozen=True, kw_only=True):
    """Namespaces that hold items, in their order."""

    namespaces: list[list[str]]


class ItemOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one operation: the item it read, what it found, or the namespaces it listed.

    A write, and a read of an item that does not exist, leave all of them None.
    """

    item: Item | None = None
    found: FoundItems | None = None
    namespaces: list[list[str]] | None = None


class ItemOutcomes(ListResult[ItemOutcome], frozen=True, kw_only=True):
    """The outcomes of a batch, one for each operation, in their order."""

    outcomes: list[ItemOutcome]


class SweptItems(msgspec.Struct, frozen=True, kw_only=True):
    """The number of expired items that were removed."""

    removed: int


MAX_DEPTH: Final = 16
MAX_LABEL_CHARACTERS: Final = 256
MAX_KEY_CHARACTERS: Final = 512
# A page of text, not a file: values are read whole, and a search decodes those that it filters.
MAX_VALUE_BYTES: Final = 512 * 1024
MAX_FILTER_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 32
MAX_FIELD_CHARACTERS: Final = 256
# Enough for one vector of each part of a long text.
MAX_VECTORS: Final = 64
MAX_DIMENSION: Final = 8_192
OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def check_namespace(field: str, namespace: Sequence[str]) -> list[str]:
    """Return a namespace with at least one label. Raises `Rejected`."""
    if not namespace:
        raise Rejected(f"{field} is empty: give at least one label", field=field)
    return check_labels(field, namespace)


def check_labels(field: str, labels: Sequence[str]) -> list[str]:
    """Return the labels of a namespace, or of a part of one, perhaps none. Raises `Rejected`."""
    if isinstance(labels, str):
        raise Rejected(f"{field} must be a list of labels, not one text", field=field)
    if len(labels) > MAX_DEPTH:
        raise Rejected(f"{field} has {len(labels)} labels; the limit is {MAX_DEPTH}", field=field)
    return [_check_name(f"{field}[{place}]", label, MAX_LABEL_CHARACTERS) for place, label in enumerate(labels)]


def check_item_key(field: str, key: object) -> str:
    """Return the key of an item. Raises `Rejected`."""
    return _check_name(field, key, MAX_KEY_CHARACTERS)


def check_item_value(field: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of an item. Raises `Rejected` unless it is a JSON object of at most 512 KiB."""
    check_json(field, value, MAX_VALUE_BYTES, any_text=True)
    return dict(value)


def check_filter(field: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a search. Raises `Rejected` for an unknown operator."""
    check_json(field, conditions, MAX_FILTER_BYTES, any_text=True)
    _check_operators(field, field, conditions)
    return dict(conditions)


def check_index(field: str, paths: Sequence[str]) -> list[str]:
    """Return the paths of the texts to be indexed. Raises `Rejected` for too many or too long ones."""
    if isinstance(paths, str):
        raise Rejected(f"{field} must be a list of paths, not one text", field=field)
    if len(paths) > MAX_FIELDS:
        raise Rejected(f"{field} has {len(paths)} paths; the limit is {MAX_FIELDS}", field=field)
    return [_check_name(f"{field}[{place}]", path, MAX_FIELD_CHARACTERS) for place, path in enumerate(paths)]


def check_vectors(field: str, vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return vectors as lists of floats. Raises `Rejected` unless all have the same length."""
    if len(vectors) > MAX_VECTORS:
        raise Rejected(f"{field} has {len(vectors)} vectors; the limit is {MAX_VECTORS}", field=field)
    found = [check_vector(f"{field}[{place}]", vector) for place, vector in enumerate(vectors)]
    if len({len(vector) for vector in found}) > 1:
        raise Rejected(f"{field} has vectors of different lengths", field=field)
    return found


def check_vector(field: str, vector: Sequence[float]) -> list[float]:
    """Return a vector. Raises `Rejected` unless it has numbers, all of them finite."""
    numbers = [float(number) for number in vector]
    if not 1 <= len(numbers) <= MAX_DIMENSION or not all(map(math.isfinite, numbers)):
        raise Rejected(f"{field} must have 1 to {MAX_DIMENSION:,} finite numbers", field=field)
    return numbers


def _check_name(field: str, name: object, limit: int) -> str:
    """Return a name. It may have any characters but NUL, so that names taken from other stores need no change."""
    if not isinstance(name, str) or not name:
        raise Rejected(f"{field} must be a text that is not empty", field=field)
    if len(name) > limit:
        raise Rejected(f"{field} has {len(name):,} characters; the limit is {limit}", field=field)
    check_text(field, name, 4 * limit)
    return name


def _check_operators(field: str, where: str, conditions: Mapping[str, Any]) -> None:
    for key, condition in conditions.items():
        if not isinstance(condition, Mapping):
            continue
        operators = [name for name in condition if str(name).startswith("$")]
        unknown = next((name for name in operators if name not in OPERATORS), None)
        if unknown is not None:
            known = ", ".join(OPERATORS)
            raise Rejected(f"{where}[{key!r}]: unknown operator {unknown!r}; known are {known}", field=field)
        if not operators:
            _check_operators(field, f"{where}[{key!r}]", condition)


_A = TypeVar("_A")

# Items in one answer. LangGraph's callers ask for whole namespaces.
MAX_ITEMS = 10_000
# Operations in one batch: as many as fit into one short transaction.
MAX_OPERATIONS = 500
_YEAR_SECONDS = 366 * 24 * 3_600.0

Distance = Literal["cosine", "l2", "inner_product"]
OwnerId = Annotated[UserId, Meta(description="The end user whose items these are; by default the agent's own.")]
Namespace = Annotated[Sequence[str], checked(check_namespace, "The labels of the namespace, at most 16.")]
Labels = Annotated[Sequence[str], checked(check_labels, "Only of namespaces that begin with these labels.")]
Key = Annotated[str, checked(check_item_key, "The key within the namespace, at most 512 characters.")]
Value = Annotated[dict[str, Any], checked(check_item_value, "Any JSON object of at most 512 KiB.")]
Ttl = Annotated[
    float, Meta(gt=0, le=100 * _YEAR_SECONDS, description="Seconds until the item expires; by default it never does.")
]
Index = Annotated[
    Sequence[str],
    checked(
        check_index,
        'Paths of the texts to search by, such as "text" or "notes[*].title"; by default the whole value,'
        " and an empty list for none.",
    ),
]
Vectors = Annotated[
    Sequence[Sequence[float]], checked(check_vectors, "Vectors of your own embedder, in place of an index.")
]
QueryVector = Annotated[Sequence[float], checked(check_vector, "The vector of the query, of your own embedder.")]
Filter = Annotated[
    dict[str, Any],
    checked(check_filter, 'Conditions on fields of the value: {"kind": "note", "year": {"$gte": 2020}}.'),
]
SemanticQuery = Annotated[str, Meta(max_length=100_000, description="What to search for, in natural language.")]
RefreshTtl = Annotated[bool, Meta(description="Restart the time to live of the returned items.")]
Expired = Annotated[bool, Meta(description="Return expired items too, which the next sweep removes.")]
ItemLimit = Annotated[int, Meta(ge=1, le=MAX_ITEMS, description="The maximum number to return.")]
MaxDepth = Annotated[int, Meta(ge=1, le=MAX_DEPTH, description="Shorten the namespaces to this many labels.")]


class OfOwner(OfUser[_A], kw_only=True, frozen=True):
    """A call about the items of one user, or of the agent itself."""

    user: OwnerId | None = None


def _bytes_of(namespace: Sequence[str], key: str, value: Mapping[str, Any] | None) -> int:
    names = sum(len(label.encode()) for label in (*namespace, key))
    return names + (len(msgspec.json.encode(value)) if value is not None else 0)


class PutItem(OfOwner[Item], frozen=True):
    """Store an item in place of the one under its key, and return it. It can be read at once. Raises `Rejected`.

    The texts at `index` are embedded, so that it can be found by meaning. If the embedder is away, that follows later.
    """

    route: ClassVar = "PUT /v1/items"
    # A repeated call stores the same value again; of several values, the last one put counts in any case.
    is_idempotent: ClassVar = True
    namespace: Namespace
    key: Key
    value: Value
    ttl_seconds: Ttl | None = None
    index: Index | None = None
    vectors: Vectors | None = None

    def checked(self) -> PutItem:
        """Raise `Rejected` for vectors and an index."""
        _check_one_index(self.index, self.vectors)
        return self

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"bytes": _bytes_of(self.namespace, self.key, self.value)}


class GetItem(OfOwner[Item], frozen=True):
    """Return an item. Raises `NotFound`."""

    route: ClassVar = "GET /v1/items"
    namespace: Namespace
    key: Key
    refresh_ttl: RefreshTtl = False
    expired: Expired = False


class DeleteItem(OfOwner[Deleted], frozen=True):
    """Delete an item; return False if there was none."""

    route: ClassVar = "DELETE /v1/items"
    required_scope: ClassVar = "write"
    namespace: Namespace
    key: Key


class SearchItems(OfOwner[FoundItems], frozen=True):
    """Return items below a namespace that match the filter: the most similar to the query first, or the newest.

    A query is compared with the texts that were indexed when the items were put, or as `query_vector` with the vectors
    that were put with them; items without any come last. Raises `Rejected`.
    """

    route: ClassVar = "POST /v1/items/search"
    required_scope: ClassVar = "read"
    namespace: Labels = ()
    query: SemanticQuery = ""
    filter: Filter = {}  # noqa: RUF012 - msgspec copies it
    limit: ItemLimit = 10
    offset: Offset = 0
    refresh_ttl: RefreshTtl = False
    expired: Expired = False
    query_vector: QueryVector | None = None
    distance: Annotated[Distance, Meta(description="How vectors of your own embedder are compared.")] = "cosine"


class ListItemNamespaces(OfOwner[NamespaceList], frozen=True):
    """List the namespaces that hold items, in their order. In a prefix or suffix, "*" stands for any one label."""

    route: ClassVar = "GET /v1/items/namespaces"
    prefix: Labels = ()
    suffix: Annotated[Sequence[str], checked(check_labels, "Only namespaces that end with these labels.")] = ()
    max_depth: MaxDepth | None = None
    limit: ItemLimit = 100
    offset: Offset = 0
    expired: Annotated[bool, Meta(description="List namespaces of expired items too.")] = False


class _Operation(msgspec.Struct, frozen=True, tag_field="operation", omit_defaults=True, forbid_unknown_fields=True):
    pass


class PutOperation(_Operation, frozen=True, kw_only=True, tag="put"):
    """Store an item as `PutItem` does, or delete it if the value is None."""

    namespace: Namespace
    key: Key
    value: Value | None = None
    ttl_seconds: Ttl | None = None
    index: Index | None = None
    vectors: Vectors | None = None


class GetOperation(_Operation, frozen=True, kw_only=True, tag="get"):
    """Read an item as `GetItem` does."""

    namespace: Namespace
    key: Key
    refresh_ttl: RefreshTtl = False
    expired: Expired = False


class SearchOperation(_Operation, frozen=True, kw_only=True, tag="search"):
    """Search as `SearchItems` does."""

    namespace: Labels = ()
    query: SemanticQuery = ""
    filter: Filter = {}
    limit: ItemLimit = 10
    offset: Offset = 0
    refresh_ttl: RefreshTtl = False
    expired: Expired = False
    query_vector: QueryVector | None = None
    distance: Distance = "cosine"


class NamespacesOperation(_Operation, frozen=True, kw_only=True, tag="namespaces"):
    """List namespaces as `ListItemNamespaces` does."""

    prefix: Labels = ()
    suffix: Labels = ()
    max_depth: MaxDepth | None = None
    limit: ItemLimit = 100
    offset: Offset = 0
    expired: bool = False


ItemOperation: TypeAlias = PutOperation | GetOperation | SearchOperation | NamespacesOperation


def check_operations(field: str, operations: Sequence[ItemOperation]) -> list[ItemOperation]:
    """Return checked operations. Raises `Rejected` naming the wrong one."""
    if len(operations) > MAX_OPERATIONS:
        raise Rejected(f"{len(operations)} {field}; the limit is {MAX_OPERATIONS} in one batch", field=field)
    return [_check_operation(f"{field}[{place}]", operation) for place, operation in enumerate(operations)]


def _check_operation(field: str, operation: ItemOperation) -> ItemOperation:
    try:
        found = check_fields(operation)
        if isinstance(found, PutOperation):
            _check_one_index(found.index, found.vectors)
    except Rejected as error:
        raise Rejected(f"{field}: {error}", field=field) from None
    return found


def _check_one_index(index: Sequence[str] | None, vectors: Sequence[Sequence[float]] | None) -> None:
    if index and vectors:
        raise Rejected("index and vectors exclude each other: give one of them", field="vectors")


class BatchItems(OfOwner[ItemOutcomes], frozen=True):
    """Carry out operations on items, and return an outcome for each: the reads first, then the writes as one.

    Of several writes of one item the last one counts. Raises `Rejected` naming the wrong operation.
    """

    route: ClassVar = "POST /v1/items/batch"
    is_idempotent: ClassVar = True  # as for `PutItem`
    operations: Annotated[
        Sequence[ItemOperation],
        checked(check_operations, "Operations: `operation` is put, get, search or namespaces; at most 500."),
    ]

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        puts = (operation for operation in self.operations if isinstance(operation, PutOperation))
        return {"bytes": sum(_bytes_of(put.namespace, put.key, put.value) for put in puts if put.value is not None)}


class SweepItems(OfOwner[SweptItems], frozen=True):
    """Remove expired items now; return how many. The server does so by itself, once a day."""

    route: ClassVar = "POST /v1/items/sweep"
    is_idempotent: ClassVar = True
