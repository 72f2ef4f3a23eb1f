"""Opens the stores that the settings name, for a process that works with them."""

from __future__ import annotations

from contextlib import ExitStack

from memory.trust.host_folder import share_keys
from storage.opened import open_stores
from storage.stores import Stores
from worker.settings import Settings


def open_own_stores(settings: Settings, *, patience_seconds: float | None = None) -> Stores:
    """Open the stores, whose hosts share their keys; see `open_stores` for the rest."""
    stores = open_stores(
        settings.data,
        settings.database,
        patience_seconds=patience_seconds,
        connections=settings.database_connections,
    )
    with ExitStack() as on_error:
        on_error.callback(stores.close)
        share_keys(stores)
        on_error.pop_all()
    return stores
