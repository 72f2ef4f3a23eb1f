"""Build the search indexes anew from chunks and canonical vectors, while searches and writers go on.

The new generation is filled in beside the old in short transactions and takes its place in one. Interrupted, it goes
on where it was: how far it has come is in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import text

from storage.index import EVERYTHING, Generation, IndexKind
from storage.stores import Store, Transaction

# Some 20 ms under the write lock.
_BATCH: Final = 500

Progress = Callable[[int, int], None]


def reindex(store: Store, kind: IndexKind, *, now: int, progress: Progress | None = None) -> int:
    """Rebuild one kind of index and return how many chunks it covers. `progress` gets (done, total).

    Raises nothing when there is nothing to index yet: 0 then.
    """
    total = _count(store, kind)
    done = 0
    for step in _steps(store, kind, now):
        done += step
        if progress is not None:
            progress(min(done, total), total)
    return done


def _steps(store: Store, kind: IndexKind, now: int) -> Iterator[int]:
    with store.writing() as tx:
        active = tx.index.active(kind)
        if active is None and kind == "text":  # lost: search finds nothing until this one is full
            active = Generation(0, kind, "", 0, "active", 0)
        if active is None:
            return
        building = _building(tx, kind) or tx.index.create(
            kind, now=now, model=active.model, dim=active.dim, active=False
        )
        if (building.model, building.dim) != (active.model, active.dim):
            tx.index.drop(building)
            building = tx.index.create(kind, now=now, model=active.model, dim=active.dim, active=False)
    while True:
        with store.writing() as tx:
            generation = _building(tx, kind)
            if generation is None or generation.id != building.id:
                return  # another process finished it
            filled = _fill(tx, generation)
            last = filled < _BATCH
            if last:
                _switch(tx, generation)
        yield filled  # outside the transaction: whoever shows the progress must hold up no writer
        if last:
            return


def _building(tx: Transaction, kind: IndexKind) -> Generation | None:
    return next((g for g in tx.index.generations() if g.kind == kind and g.state == "building"), None)


def _fill(tx: Transaction, generation: Generation) -> int:
    """Add the next chunks beyond what the generation covers, and move its mark."""
    source = "chunks" if generation.kind == "text" else "chunks_vec"
    key = "id" if generation.kind == "text" else "chunk_id"
    ids = list(
        tx.connection.execute(
            text(f"SELECT {key} FROM {source} WHERE {key} > :after ORDER BY {key} LIMIT :limit"),
            {"after": generation.built_to, "limit": _BATCH},
        ).scalars()
    )
    if ids and generation.kind == "text":
        tx.connection.execute(
            text(
                f"INSERT INTO {generation.table} (rowid, text)"
                " SELECT id, text FROM chunks WHERE id > :after AND id <= :last"
            ),
            {"after": generation.built_to, "last": ids[-1]},
        )
    elif ids:
        tx.index.fill_vectors(generation, tx.chunks.vectors(ids))
    if ids:
        tx.connection.execute(
            text("UPDATE indexes SET built_to = :last WHERE id = :id"), {"last": ids[-1], "id": generation.id}
        )
    return len(ids)


def _switch(tx: Transaction, generation: Generation) -> None:
    """Put the finished generation in the place of the active one, in the caller's transaction."""
    active = tx.index.active(generation.kind)
    if active is not None:
        tx.index.drop(active)
    tx.connection.execute(
        text("UPDATE indexes SET state = 'active', built_to = :all WHERE id = :id"),
        {"all": EVERYTHING, "id": generation.id},
    )


def _count(store: Store, kind: IndexKind) -> int:
    table = "chunks" if kind == "text" else "chunks_vec"
    with store.reading() as tx:
        return int(tx.connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())
