"""Re-embed a workspace with another model, or again with the same one, while recall continues with the old vectors.

New vectors are added next to the old ones in short transactions, and the embedder is called between them. Once every
chunk has a new vector, recall switches in one transaction and the old vectors are removed. All progress is in the
database: a run that was killed at any point is resumed by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.embedders.base import Embedder, EmbedderUnavailable, EmbeddingRefused
from adapters.embedders.record import EmbedderRecord
from memory.pipeline.dead_letters import take_up_refused
from memory.pipeline.embedding import BATCH_CHUNKS, vectors_of_chunks
from memory.pipeline.pace import Pace
from reverie.errors import Conflict, Permanent
from storage.index.search_index import Generation
from storage.pipeline.records import PendingChunk
from storage.reindex import (
    ModelChange,
    count_vectors,
    has_leftovers,
    has_vectors,
    leave_to_workers,
    put_vectors,
    remove_leftovers,
    to_reembed,
)
from storage.stores import Store
from storage.transaction import Transaction

# Under a stream of new messages there is always one that a worker has just embedded with the old model. After some
# rounds the remaining chunks are left to the workers, which embed them with the new model right after the switch.
_MAX_ROUNDS: Final = 10
_MAX_LEFT_TO_WORKERS: Final = 64
# A model may refuse single texts; if it refuses more than this, the model is not suitable.
_MAX_REFUSED: Final = 10
_MAX_REFUSED_SHARE: Final = 0.01
# A short outage of an endpoint must not end hours of work; after half a minute the run ends and can be resumed.
_WAITS_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_MAX_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ReembedTarget:
    """The embedder to use, loaded, with its record.

    With `force` a workspace that already has this embedder is re-embedded too. `configured` is the embedder of the
    settings: that of an index without a record.
    """

    embedder: Embedder
    record: EmbedderRecord
    force: bool = False
    configured: EmbedderRecord | None = None


@dataclass(frozen=True, slots=True)
class ReembedStart:
    """The state at the start of a change: old and new model, and whether an unfinished change is resumed.

    `change` is None if nothing has to be embedded. `dropped` names the model of an abandoned change.
    """

    change: ModelChange | None
    old: str
    new: str
    resumed: bool = False
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class ReembedControl:
    """How a run reports and is controlled.

    `progress` gets (done, total), `stop` is asked between batches, and `pause` waits some seconds.
    """

    batch_size: int = BATCH_CHUNKS
    on_start: Callable[[ReembedStart], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _done, _total: None
    stop: Callable[[], bool] = lambda: False
    pause: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class ReembedReport:
    """The result of a run. `finished` is False if it was stopped; the next run resumes it."""

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
    target: ReembedTarget,
    *,
    now: Callable[[], int],
    control: ReembedControl = ReembedControl(),
) -> ReembedReport:
    """Re-embed a workspace with the target embedder.

    An unfinished change to this embedder is resumed; one to another model is abandoned.

    Raises `EmbedderUnavailable`, `EmbeddingRefused` if the model refuses too many texts, and `Conflict` if another
    process started another change; recall is then unchanged.
    """
    start = _start(store, target, now=now)
    control.on_start(start)
    report = ReembedReport(start.old, start.new, target.record.dimension, start.resumed, start.dropped)
    if start.change is not None:
        report.finished = _Change(store, target.embedder, start.change, report, control).run()
    if report.finished:
        report.old_vectors_removed = remove_leftovers(store)
        report.left_to_workers += take_up_refused(store)
    return report


class _Change:
    """One run of a change: from its current state to the switch, or until it is stopped."""

    def __init__(
        self, store: Store, embedder: Embedder, change: ModelChange, report: ReembedReport, control: ReembedControl
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._change = change
        self._report = report
        self._control = control
        self._refused: dict[int, Permanent] = {}
        self._withdrawn: set[int] = set()
        self._pace = Pace(control.batch_size)
        with store.reading() as tx:
            self._total = count_vectors(tx, change.active.model)
            self._done = count_vectors(tx, change.target.model)

    def run(self) -> bool:
        """Embed until no chunk is left, then switch; return False if stopped."""
        reached = rounds = 0
        while not self._control.stop():
            with self._store.reading() as tx:
                size = self._pace.texts_at_once(self._control.batch_size)
                chunks = to_reembed(tx, self._change, after=reached, limit=size, exclude=self._left_out)
            if chunks:
                if not self._embed(chunks):
                    return True
                reached = chunks[-1].id
            elif self._switch(last_round=rounds >= _MAX_ROUNDS):
                return True
            else:  # meanwhile, earlier chunks got vectors of the old model
                reached, rounds = 0, rounds + 1
        return False

    def _embed(self, chunks: list[PendingChunk]) -> bool:
        """Embed chunks and store their new vectors; return False if another process has finished the change."""
        vectors = self._vectors(chunks)
        with self._store.writing() as tx:
            if not self._is_current(tx):
                return False
            written = put_vectors(tx, self._change, vectors)
        self._report.embedded += written
        self._done += written
        self._total = max(self._total, self._done)
        self._control.progress(self._done, self._total)
        return True

    def _switch(self, *, last_round: bool) -> bool:
        """Switch recall to the new model unless chunks are left, which is checked in the same transaction."""
        with self._store.writing() as tx:
            if not self._is_current(tx):
                return True
            left = to_reembed(tx, self._change, after=0, limit=_MAX_LEFT_TO_WORKERS + 1, exclude=self._left_out)
            if left and not (last_round and len(left) <= _MAX_LEFT_TO_WORKERS):
                return False
            waiting = {chunk.id for chunk in left} | self._left_out
            if waiting:
                leave_to_workers(tx, waiting)
            tx.index.promote(self._change.target)
            tx.waiting_items.wait_again(self._change.target.model)
        self._report.left_to_workers = len(waiting)
        return True

    @property
    def _left_out(self) -> set[int]:
        return self._refused.keys() | self._withdrawn

    def _is_current(self, tx: Transaction) -> bool:
        """Return whether this change is still in progress. Raises `Conflict` if another change has replaced it."""
        if self._change.is_current(tx):
            return True
        if self._change.is_done(tx):
            return False
        raise Conflict(
            f"workspace {self._store.name}: another process has started a different change of model: run one at a time",
            field="model",
        )

    def _vectors(self, chunks: list[PendingChunk]) -> Sequence[tuple[int, bytes]]:
        vectors, refused = self._embed_with_retries(chunks)
        wrong = [blob for _, blob in vectors if len(blob) != 4 * self._change.target.dim]
        if wrong:
            raise EmbeddingRefused(
                f"{self._change.target.model} returned vectors of {len(wrong[0]) // 4} numbers instead of"
                f" {self._change.target.dim}: start again with its real dimension"
            )
        self._refused |= refused
        if len(self._refused) > max(_MAX_REFUSED, _MAX_REFUSED_SHARE * self._total):
            raise EmbeddingRefused(
                f"{self._change.target.model} refused {len(self._refused)} of {self._total} texts"
                f" ({next(reversed(self._refused.values()))}): recall keeps using {self._change.active.model}"
            )
        return vectors

    def _embed_with_retries(self, chunks: list[PendingChunk]) -> tuple[list[tuple[int, bytes]], dict[int, Permanent]]:
        for wait in _WAITS_SECONDS:
            try:
                return vectors_of_chunks(self._embedder, chunks, self._not_withdrawn, self._pace)
            except EmbedderUnavailable as error:
                self._control.pause(min(max(wait, error.retry_after_seconds or 0.0), _MAX_WAIT_SECONDS))
        return vectors_of_chunks(self._embedder, chunks, self._not_withdrawn, self._pace)

    def _not_withdrawn(self, chunks: Sequence[PendingChunk]) -> Sequence[PendingChunk]:
        """Leave out chunks that were forgotten or are being erased; workers embed those that are left at the switch."""
        withdrawn = self._store.withdrawn("chunks", [chunk.id for chunk in chunks])
        self._withdrawn |= withdrawn
        return [chunk for chunk in chunks if chunk.id not in withdrawn]


def _start(store: Store, target: ReembedTarget, *, now: Callable[[], int]) -> ReembedStart:
    """Resume an unfinished change, or remove leftovers and start one."""
    record = target.record
    dropped = ""
    while True:
        with store.reading() as tx:
            leftovers = has_leftovers(tx)
        with store.writing() as tx:
            active = tx.index.active("vector")
            if active is None:
                return _create_first_index(store, tx, record, now())
            half_done = tx.index.changing()
            if half_done and _matches(half_done, record, None):
                return ReembedStart(ModelChange(active, half_done), active.model, half_done.model, resumed=True)
            if half_done:
                tx.index.drop(half_done)
                dropped = half_done.model
            # If a change was killed after its switch, only its leftovers are removed; nothing is embedded again.
            cleaning = leftovers and not dropped
            if _matches(active, record, target.configured) and (not target.force or cleaning):
                return ReembedStart(None, active.model, active.model, resumed=cleaning, dropped=dropped)
        remove_leftovers(store)
        with store.writing() as tx:
            start = _create_next_index(tx, active, record, now(), dropped)
        if start is not None:
            return start


def _create_first_index(store: Store, tx: Transaction, record: EmbedderRecord, now: int) -> ReembedStart:
    """Create the index of a workspace that has no vectors yet, which sets its model."""
    if has_vectors(tx):
        raise Conflict(f"workspace {store.name} has vectors but no index of them: restore a backup", field="workspace")
    half_built = tx.index.building("vector")
    if half_built is not None:
        tx.index.drop(half_built)
    tx.index.create("vector", now=now, model=record.name, dim=record.dimension, embedder=record.encode(), active=True)
    return ReembedStart(None, "", record.name)


def _create_next_index(
    tx: Transaction, active: Generation, record: EmbedderRecord, now: int, dropped: str
) -> ReembedStart | None:
    """Create the index of the next model; return None if another process interfered; the caller then starts over."""
    if tx.index.active("vector") != active or tx.index.changing() or has_leftovers(tx):
        return None
    half_built = tx.index.building("vector")  # of a rebuild: this change creates a new index anyway
    if half_built is not None:
        tx.index.drop(half_built)
    known = EmbedderRecord.decode(active.embedder)
    revision = 1
    if known is not None and known.model == record.model:
        revision = known.revision + 1
    elif active.model == record.model:
        revision = 2
    revised = record.with_revision(revision)
    target = tx.index.create(
        "vector", now=now, model=revised.name, dim=revised.dimension, embedder=revised.encode(), active=False
    )
    return ReembedStart(ModelChange(active, target), active.model, target.model, dropped=dropped)


def _matches(generation: Generation, record: EmbedderRecord, configured: EmbedderRecord | None) -> bool:
    """Return whether this embedder made an index; an index without a record is `configured`'s if the names match."""
    known = EmbedderRecord.decode(generation.embedder)
    if known is None and configured is not None and generation.model == configured.name:
        known = msgspec.structs.replace(
            configured, dimension=generation.dim
        )  # an embedder does not know its dimension before it is loaded
    return known is not None and generation.dim == record.dimension and known.same_embedder(record)
