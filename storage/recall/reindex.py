"""Rebuilds the search indexes from chunks and canonical vectors, while searches and writers continue.

The new generation is filled in short transactions and replaces the old one in one. Its progress is stored in the
database, so an interrupted rebuild continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from reverie.errors import Conflict
from storage.recall.generations import Generation, IndexKind
from storage.recall.recount import recount_words
from storage.rows import execute
from storage.stores import Store
from storage.transaction import Transaction

# About 20 ms under the write lock.
_BATCH: Final = 500

# The vectors that an index is built from: chunks have two from the start of a change of model until the old are gone.
_OF_ACTIVE_MODEL: Final = "model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"

CHANGE_UNDER_WAY: Final = "a change of model is in progress: finish it with `reverie db reembed`"

Progress = Callable[[int, int], None]


def reindex(store: Store, kind: IndexKind, *, now: int, progress: Progress | None = None) -> int:
    """Rebuild one kind of index and return how many chunks it covers (0 without any). `progress` gets (done, total).

    Rebuilding full text also recounts the words of the forward index where they differ. Raises `Conflict` for vectors
    during a change of model: the index that the change builds replaces this one anyway.
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
        if active is None and kind == "text":  # lost: searches find nothing until this one is complete
            active = Generation(0, kind, "", 0, "active", 0)
        if active is None:
            return
        if kind == "vector" and tx.index.changing():
            raise Conflict(f"workspace {store.name}: {CHANGE_UNDER_WAY}", field="kind")
        building = tx.index.building(kind) or tx.index.create(
            kind, now=now, model=active.model, dim=active.dim, embedder=active.embedder, active=False
        )
    while True:
        with store.writing() as tx:
            generation = tx.index.building(kind)
            # Ids are reused: a change of model that dropped this rebuild may have taken its id.
            if generation is None or (generation.id, generation.model) != (building.id, building.model):
                return  # another process finished it
            filled = _fill(tx, generation)
            last = filled < _BATCH
            if last:
                tx.index.promote(generation)
        yield filled  # outside the transaction, so that showing progress blocks no writer
        if last:
            return


def _fill(tx: Transaction, generation: Generation) -> int:
    """Add the next chunks after those the generation covers, and advance `built_to`."""
    key = "id" if generation.kind == "text" else "chunk_id"
    ids = list(
        execute(
            tx.connection,
            f"SELECT {key} FROM {_source(generation.kind)} AND {key} > :after ORDER BY {key} LIMIT :limit",
            after=generation.built_to,
            limit=_BATCH,
        ).scalars()
    )
    if ids and generation.kind == "text":
        tx.index.fill_texts(generation, after=generation.built_to, last=ids[-1])
    elif ids:
        tx.index.fill_vectors(generation, tx.chunks.vectors(ids))
    if ids:
        execute(tx.connection, "UPDATE indexes SET built_to = :last WHERE id = :id", last=ids[-1], id=generation.id)
    return len(ids)


def _count(store: Store, kind: IndexKind) -> int:
    with store.reading() as tx:
        return int(execute(tx.connection, f"SELECT count(*) FROM {_source(kind)}").scalar_one())


def _source(kind: IndexKind) -> str:
    """Return the table that the entries of an index come from, with a condition on its rows."""
    return "chunks WHERE true" if kind == "text" else f"chunks_vec WHERE {_OF_ACTIVE_MODEL}"
