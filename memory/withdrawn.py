"""Drops rows before they leave the process, if they were forgotten or are being erased meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from reverie.errors import NotFound
from storage.lifecycle.withdrawn import Table
from storage.stores import Store


class Withdrawn(NotFound):
    """The content to send was forgotten, or is being erased."""


def require_wanted(store: Store, table: Table, keys: Collection[Any]) -> None:
    """Raise `Withdrawn` if one of these rows was forgotten or is being erased."""
    withdrawn = store.withdrawn(table, keys) if keys else ()
    if withdrawn:
        raise Withdrawn(f"{len(withdrawn)} of {len(keys)} {table} in {store.name} were forgotten, or are being erased")
