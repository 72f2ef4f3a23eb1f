"""Opens the stores of an installation: in SQLite files, or in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.errors import StoreUnusable
from storage.stores import Stores

if TYPE_CHECKING:
    from storage.postgres.hosts import Hosts  # its module needs the driver of the database


def open_stores(
    data_dir: Path,
    database: str | None = None,
    *,
    patience_seconds: float | None = None,
    connections: int | None = None,
    kept_connections: int | None = None,
) -> Stores:
    """Return the stores of a data folder, or those of the PostgreSQL database at the address `database`.

    `patience_seconds` limits the wait for a file that is being opened, `kept_connections` how many connections to files
    stay open, and `connections` how many threads use the database at once. Open them after a fork, never before. Raises
    `StoreUnusable` or `StoreUnavailable` when the database cannot be used.
    """
    if database is None:
        return Stores(data_dir, patience_seconds=patience_seconds, connections=kept_connections)
    try:
        from storage.postgres.stores import PostgresStores
    except ImportError as error:
        raise StoreUnusable(
            f"REVERIE_DATABASE names a PostgreSQL database, which needs {error.name}:"
            " pip install 'reverie-pipeline[postgres]'"
        ) from error
    return (
        PostgresStores(data_dir, database)
        if connections is None
        else PostgresStores(data_dir, database, turns=connections)
    )


def hosts_of(stores: Stores) -> Hosts | None:
    """Return the hosts that share the stores of a database; None for files, which are on one host."""
    hosts: Callable[[], Hosts] | None = getattr(stores, "hosts", None)
    return None if hosts is None else hosts()
