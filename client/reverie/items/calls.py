"""The calls for items: JSON objects that an agent keeps under a namespace and a key.

An item is returned exactly as it was put. No job merges, decays or prunes it. Each user of an agent has items of their
own; those of a call without a user belong to the agent, and no user's call reaches them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from reverie.calls import OfUser, Resource
from reverie.errors import Rejected
from reverie.fields import Offset, UserId, check_fields, checked
from reverie.items.checks import (
    MAX_DEPTH,
    check_filter,
    check_index,
    check_item_key,
    check_item_value,
    check_labels,
    check_namespace,
    check_vector,
    check_vectors,
)
from reverie.items.types import FoundItems, Item, ItemOutcomes, NamespaceList, SweptItems
from reverie.types import Deleted

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
    checked(check_filter, 'What fields of the value must be: {"kind": "note", "year": {"$gte": 2020}}.'),
]
SemanticQuery = Annotated[str, Meta(max_length=100_000, description="What to search for, in natural language.")]
RefreshTtl = Annotated[bool, Meta(description="Begin the time to live of what is returned anew.")]
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
    # A repetition stores the same value: the last one put counts in any case.
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


class PutOperation(msgspec.Struct, frozen=True, kw_only=True, tag="put", tag_field="operation", omit_defaults=True):
    """Store an item as `PutItem` does, or delete it if the value is None."""

    namespace: Namespace
    key: Key
    value: Value | None = None
    ttl_seconds: Ttl | None = None
    index: Index | None = None
    vectors: Vectors | None = None


class GetOperation(msgspec.Struct, frozen=True, kw_only=True, tag="get", tag_field="operation", omit_defaults=True):
    """Read an item as `GetItem` does."""

    namespace: Namespace
    key: Key
    refresh_ttl: RefreshTtl = False
    expired: Expired = False


class SearchOperation(
    msgspec.Struct, frozen=True, kw_only=True, tag="search", tag_field="operation", omit_defaults=True
):
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


class NamespacesOperation(
    msgspec.Struct, frozen=True, kw_only=True, tag="namespaces", tag_field="operation", omit_defaults=True
):
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
