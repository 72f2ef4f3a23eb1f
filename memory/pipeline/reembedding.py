"""Embed a workspace anew with another model, or with the same one, while recall goes on with what is there.

The new vectors are written beside the old ones in short transactions, the embedder is called between them. When no
chunk is left without a new vector, recall switches in one transaction, and what is left of the old model goes. Killed
at any point, it goes on where it was: everything that says how far it has come is in the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.embedders.base import Embedder, EmbedderUnavailable, EmbeddingRefused
from adapters.embedders.record import EmbedderRecord, replace_revision
from memory.pipeline.embedding import BATCH_CHUNKS, vectors_of_chunks
from reverie.errors import Conflict, Permanent
from storage.pipeline.records import PendingChunk
from storage.recall.index import Generation
from storage.recall.reembed import (
    ModelChange,
    has_leftovers,
    has_vectors,
    leave_to_workers,
    put_vectors,
    remove_leftovers,
    to_reembed,
    vectors_of,
)
from storage.stores import Store
from storage.transaction import Transaction

# Under a stream of new messages there is always one that a worker has just embedded with the old model. After some
# rounds, the last of them are left to the workers, who embed them with the new one right after the switch.
_ROUNDS: Final = 10
_MOST_LEFT: Final = 64
# A text or two that a model will not have is life; of more than these, it is the model that does not fit.
_MOST_REFUSED: Final = 10
_MOST_REFUSED_SHARE: Final = 0.01
# An endpoint that stumbles must not end hours of work; one that stays away for half a minute ends it, resumable.
_WAITS_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_LONGEST_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Begun:
    """What a change begins with: from which model to which, and whether it goes on with what was half done.

    `change` is None where nothing has to be embedded. `dropped` names the model of a half-done change to another
    model that was given up for this one.
    """

    change: ModelChange | None
    old: str
    new: str
    resumed: bool = False
    dropped: str = ""


@dataclass(slots=True)
class ReembedReport:
    """What was done. `finished` is False where it was stopped; run again, it goes on."""

    old: str
    new: str
    dimension: int
    resumed: bool
    dropped: str
    embedded: int = 0
    left_to_workers: int = 0
    old_vectors_removed: int = 0
    finished: bool = True


def reembed(
    store: Store,
    embedder: Embedder,
    record: EmbedderRecord,
    *,
    now: Callable[[], int],
    anew: bool = False,
    configured: EmbedderRecord | None = None,
    batch_size: int = BATCH_CHUNKS,
    on_begun: Callable[[Begun], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    stop: Callable[[], bool] = lambda: False,
    pause: Callable[[float], None] = time.sleep,
) -> ReembedReport:
    """Bring a workspace to the embedder that `record` tells of, `embedder` itself, loaded.

    A half-done change to it is gone on with; one to another model is given up. A workspace that has this embedder
    already is left as it is, unless `anew`. `configured` is what the settings name: the embedder of an index that has
    no record. `progress` gets (done, total), `stop` is asked between batches, `pause` waits some seconds.

    Raises `EmbedderUnavailable`, `EmbeddingRefused` when the model does not take these texts, and `Conflict` when
    another process began another change; recall is then as it was.
    """
    begun = _begin(store, record, configured, anew=anew, now=now)
    on_begun(begun)
    report = ReembedReport(begun.old, begun.new, record.dimension, begun.resumed, begun.dropped)
    if begun.change is not None:
        report.finished = _Change(store, embedder, begun.change, batch_size, report, progress, stop, pause).run()
    if report.finished:
        report.old_vectors_removed = remove_leftovers(store)
    return report


class _Change:
    """One run of a change: from where it was to the switch, or until it is stopped."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        change: ModelChange,
        batch_size: int,
        report: ReembedReport,
        progress: Callable[[int, int], None],
        stop: Callable[[], bool],
        pause: Callable[[float], None],
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._change = change
        self._batch_size = batch_size
        self._report = report
        self._progress = progress
        self._stop = stop
        self._pause = pause
        self._refused: dict[int, Permanent] = {}
        with store.reading() as tx:
            self._total = vectors_of(tx, change.active.model)
            self._done = vectors_of(tx, change.target.model)

    def run(self) -> bool:
        """Embed until nothing is left, and switch; False when it was stopped."""
        reached = rounds = 0
        while not self._stop():
            with self._store.reading() as tx:
                chunks = to_reembed(
                    tx, self._change, after=reached, limit=self._batch_size, without=self._refused.keys()
                )
            if chunks:
                if not self._embed(chunks):
                    return True
                reached = chunks[-1].id
            elif self._switch(last_round=rounds >= _ROUNDS):
                return True
            else:  # behind the mark there are some that got their old vector meanwhile
                reached, rounds = 0, rounds + 1
        return False

    def _embed(self, chunks: list[PendingChunk]) -> bool:
        """Give chunks their new vectors; False when another process has finished the change."""
        vectors = self._vectors(chunks)
        with self._store.writing() as tx:
            if not self._goes_on(tx):
                return False
            written = put_vectors(tx, self._change, vectors)
        self._report.embedded += written
        self._done += written
        self._total = max(self._total, self._done)
        self._progress(self._done, self._total)
        return True

    def _switch(self, *, last_round: bool) -> bool:
        """Let recall use the new model, unless chunks are left: looked at in the transaction that switches."""
        with self._store.writing() as tx:
            if not self._goes_on(tx):
                return True
            left = to_reembed(tx, self._change, after=0, limit=_MOST_LEFT + 1, without=self._refused.keys())
            if left and not (last_round and len(left) <= _MOST_LEFT):
                return False
            waiting = {chunk.id for chunk in left} | self._refused.keys()
            if waiting:
                leave_to_workers(tx, waiting)
            tx.index.promote(self._change.target)
        self._report.left_to_workers = len(waiting)
        return True

    def _goes_on(self, tx: Transaction) -> bool:
        """Whether there is still something to do. Raises `Conflict` when it is not this change any more."""
        if self._change.goes_on(tx):
            return True
        if self._change.is_done(tx):
            return False
        raise Conflict(
            f"workspace {self._store.name}: another process began another change of the model: let one run only",
            field="model",
        )

    def _vectors(self, chunks: list[PendingChunk]) -> Sequence[tuple[int, bytes]]:
        vectors, refused = self._patiently(chunks)
        wrong = [blob for _, blob in vectors if len(blob) != 4 * self._change.target.dim]
        if wrong:
            raise EmbeddingRefused(
                f"{self._change.target.model} gave {len(wrong[0]) // 4} numbers instead of {self._change.target.dim}:"
                " begin again with its dimension"
            )
        self._refused |= refused
        if len(self._refused) > max(_MOST_REFUSED, _MOST_REFUSED_SHARE * self._total):
            raise EmbeddingRefused(
                f"{self._change.target.model} refused {len(self._refused)} of {self._total} texts"
                f" ({next(reversed(self._refused.values()))}): recall stays with {self._change.active.model}"
            )
        return vectors

    def _patiently(self, chunks: list[PendingChunk]) -> tuple[list[tuple[int, bytes]], dict[int, Permanent]]:
        for wait in _WAITS_SECONDS:
            try:
                return vectors_of_chunks(self._embedder, chunks)
            except EmbedderUnavailable as error:
                self._pause(min(max(wait, error.retry_after_seconds or 0.0), _LONGEST_WAIT_SECONDS))
        return vectors_of_chunks(self._embedder, chunks)


def _begin(
    store: Store, record: EmbedderRecord, configured: EmbedderRecord | None, *, anew: bool, now: Callable[[], int]
) -> Begun:
    """Find the change to go on with, or make room and begin one."""
    dropped = ""
    while True:
        with store.reading() as tx:
            leftovers = has_leftovers(tx)
        with store.writing() as tx:
            active = tx.index.active("vector")
            if active is None:
                return _first(store, tx, record, now())
            half_done = tx.index.changing()
            if half_done and _is_of(half_done, record, None):
                return Begun(ModelChange(active, half_done), active.model, half_done.model, resumed=True)
            if half_done:
                tx.index.drop(half_done)
                dropped = half_done.model
            # What is left of a change that was killed after its switch is cleaned up, not gone through once more.
            cleaning = leftovers and not dropped
            if _is_of(active, record, configured) and (not anew or cleaning):
                return Begun(None, active.model, active.model, resumed=cleaning, dropped=dropped)
        remove_leftovers(store)
        with store.writing() as tx:
            begun = _beside(tx, active, record, now(), dropped)
        if begun is not None:
            return begun


def _first(store: Store, tx: Transaction, record: EmbedderRecord, now: int) -> Begun:
    """Decide the model of a workspace that has no vector yet."""
    if has_vectors(tx):
        raise Conflict(f"workspace {store.name} has vectors and no index of them: restore a backup", field="workspace")
    half_built = tx.index.building("vector")
    if half_built is not None:
        tx.index.drop(half_built)
    tx.index.create("vector", now=now, model=record.name, dim=record.dimension, embedder=record.written(), active=True)
    return Begun(None, "", record.name)


def _beside(tx: Transaction, active: Generation, record: EmbedderRecord, now: int, dropped: str) -> Begun | None:
    """Make the index of the next model, or None where another process was here meanwhile: look again."""
    if tx.index.active("vector") != active or tx.index.changing() or has_leftovers(tx):
        return None
    half_built = tx.index.building("vector")  # of a rebuild: this change brings a new index anyway
    if half_built is not None:
        tx.index.drop(half_built)
    known = EmbedderRecord.read(active.embedder)
    revision = 1
    if known is not None and known.model == record.model:
        revision = known.revision + 1
    elif active.model == record.model:
        revision = 2
    wanted = replace_revision(record, revision)
    target = tx.index.create(
        "vector", now=now, model=wanted.name, dim=wanted.dimension, embedder=wanted.written(), active=False
    )
    return Begun(ModelChange(active, target), active.model, target.model, dropped=dropped)


def _is_of(generation: Generation, record: EmbedderRecord, configured: EmbedderRecord | None) -> bool:
    """Whether an index is of this embedder; one without a record is of what the settings name, if of its name."""
    known = EmbedderRecord.read(generation.embedder)
    if known is None and configured is not None and generation.model == configured.name:
        known = msgspec.structs.replace(configured, dimension=generation.dim)  # not loaded, it does not know its own
    return known is not None and generation.dim == record.dimension and known.same_embedder(record)
