"""Build the search indexes anew from chunks and canonical vectors, while searches and writers go on.

The new generation is filled in beside the old in short transactions and takes its place in one. Interrupted, it goes
on where it was: how far it has come is in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import text

from reverie.errors import Conflict
from storage.recall.index import Generation, IndexKind
from storage.recall.recount import recount_words
from storage.stores import Store
from storage.transaction import Transaction

# Some 20 ms under the write lock.
_BATCH: Final = 500

# Which vectors an index is built from. While the model is changed, and until the old vectors are gone, chunks have two.
_OF_ACTIVE_MODEL: Final = "model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"

CHANGE_GOES_ON: Final = "a change of model is going on: finish it with `reverie db reembed`"

Progress = Callable[[int, int], None]


def reindex(store: Store, kind: IndexKind, *, now: int, progress: Progress | None = None) -> int:
    """Rebuild one kind of index and return how many chunks it covers. `progress` gets (done, total).

    With the full text, the words of the forward index are counted anew where they differ. Raises nothing when there is
    nothing to index yet: 0 then. Raises `Conflict` for vectors while the model is changed: the index that the change
    builds takes the place of this one anyway.
    """
    chunks = _count(store, kind)
    total = 2 * chunks if kind == "text" else chunks
    done = covered = 0
    for step in _steps(store, kind, now):
        done = covered = covered + step
        if progress is not None:
            progress(min(done, total), total)
    for step in recount_words(store) if kind == "text" else ():
        done += step
        if progress is not None:
            progress(min(done, total), total)
    return covered


def _steps(store: Store, kind: IndexKind, now: int) -> Iterator[int]:
    with store.writing() as tx:
        active = tx.index.active(kind)
        if active is None and kind == "text":  # lost: search finds nothing until this one is full
            active = Generation(0, kind, "", 0, "active", 0)
        if active is None:
            return
        if kind == "vector" and tx.index.changing():
            raise Conflict(f"workspace {store.name}: {CHANGE_GOES_ON}", field="kind")
        building = tx.index.building(kind) or tx.index.create(
            kind, now=now, model=active.model, dim=active.dim, embedder=active.embedder, active=False
        )
    while True:
        with store.writing() as tx:
            generation = tx.index.building(kind)
            # Ids are given again: that of a rebuild which a change of the model has dropped may be the change's now.
            if generation is None or (generation.id, generation.model) != (building.id, building.model):
                return  # another process finished it
            filled = _fill(tx, generation)
            last = filled < _BATCH
            if last:
                tx.index.promote(generation)
        yield filled  # outside the transaction: whoever shows the progress must hold up no writer
        if last:
            return


def _fill(tx: Transaction, generation: Generation) -> int:
    """Add the next chunks beyond what the generation covers, and move its mark."""
    key = "id" if generation.kind == "text" else "chunk_id"
    ids = list(
        tx.connection.execute(
            text(f"SELECT {key} FROM {_source(generation.kind)} AND {key} > :after ORDER BY {key} LIMIT :limit"),
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


def _count(store: Store, kind: IndexKind) -> int:
    with store.reading() as tx:
        return int(tx.connection.execute(text(f"SELECT count(*) FROM {_source(kind)}")).scalar_one())


def _source(kind: IndexKind) -> str:
    """Where the entries of an index come from, with a condition on them."""
    return "chunks WHERE true" if kind == "text" else f"chunks_vec WHERE {_OF_ACTIVE_MODEL}"
