"""Items and what calls return about them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from reverie.types import ListResult


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
    """What a search found, best first, or newest first without a query.

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
