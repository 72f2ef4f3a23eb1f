"""Upkeep of every workspace's files: optimise, verify. One that cannot be used holds up no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reverie.errors import ReverieError
from storage.reindex import reindex
from storage.stores import Store, Stores
from storage.upkeep import optimize, wasted_vectors
from storage.verify import verify


def optimize_stores(stores: Stores, *, now: Callable[[], int]) -> dict[str, Any]:
    """Optimise each workspace, and rebuild a vector index that is half empty."""

    def one(store: Store) -> dict[str, Any]:
        counts = optimize(store, now=now())
        if wasted_vectors(store) is not None:
            counts["reindexed"] = reindex(store, "vector", now=now())
        return counts

    return _each(stores, one)


def verify_stores(stores: Stores) -> dict[str, Any]:
    """Verify each workspace; what is wrong is named."""

    def one(store: Store) -> dict[str, Any]:
        # The comparison word by word would keep writers waiting for as long as it takes: that is `reverie db verify`.
        verdict = verify(store, hold_writers=False)
        return {**verdict.counts, **({"wrong": verdict.wrong} if verdict.wrong else {})}

    return _each(stores, one)


def _each(stores: Stores, work: Callable[[Store], dict[str, Any]]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for name in stores.names():
        try:
            counts[name] = work(stores.workspace(name, create=False))
        except ReverieError as error:
            counts[name] = {"error": str(error)}
    return {"workspaces": counts}
