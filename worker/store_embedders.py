"""Selects the embedder of each store: the one that made its vectors, even if the settings select another.

Every process notices a change of model on its next use, without a restart. Invariant: a model is loaded once in a
process, however many workspaces and revisions use it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import structlog

from adapters.embedders.base import EmbedderSpec
from adapters.embedders.guarded import EmbeddingObserver, GuardedEmbedder
from adapters.embedders.record import EmbedderRecord, ForeignEndpoint, recorded_embedder
from reverie.errors import Unavailable
from storage.index.search_index import Generation
from storage.stores import Store
from storage.transaction import Transaction

# Models in memory in addition to the configured one. A model takes hundreds of MB; the least recently used is dropped
# first.
_MAX_MODELS: Final = 4

log = structlog.get_logger(__name__)


class StoreEmbedders:
    """The embedders of one process, by store. Thread-safe."""

    def __init__(
        self,
        settings: EmbedderSpec,
        configured: GuardedEmbedder | None,
        observe: EmbeddingObserver = lambda _purpose, _texts, _succeeded: None,
    ) -> None:
        self._settings = settings
        self._configured = configured
        self._observe = observe
        self._recorded: OrderedDict[str, GuardedEmbedder | None] = OrderedDict()
        self._lock = threading.Lock()

    def for_store(self, store: Store) -> GuardedEmbedder | None:
        """Return the embedder of the vectors that a store searches, loaded or not; None for keyword search only.

        It is the configured embedder if the store has no vectors yet, if it made them, or if the store does not record
        how to make another one: then recall and the embed stage notice that it does not match. Without a configured
        embedder every store is searched by keywords only.
        """
        if self._configured is None:
            return None
        with store.reading() as tx:
            return self.for_transaction(tx)

    def for_transaction(self, tx: Transaction) -> GuardedEmbedder | None:
        """Return the embedder as `for_store`, for the store of an open transaction. Loads no model in it."""
        if self._configured is None:
            return None
        vectors = [generation for generation in tx.index.generations() if generation.kind == "vector"]
        for generation in vectors:
            if generation.state == "building" and not self._is_configured(generation):
                self._prepare(generation)
        active = next((generation for generation in vectors if generation.state == "active"), None)
        if active is None or not active.embedder or self._is_configured(active):
            return self._configured
        return self._recorded_embedder(active.embedder)[0] or self._configured

    def _is_configured(self, generation: Generation) -> bool:
        configured = self._configured
        # Some models know their dimension only once they are loaded, so it is compared again on use.
        return (
            configured is not None
            and configured.model == generation.model
            and configured.dimension in (0, generation.dim)
        )

    def _recorded_embedder(self, record_text: str) -> tuple[GuardedEmbedder | None, bool]:
        """Return the embedder of a record, and whether it is new in this process."""
        with self._lock:
            if record_text in self._recorded:
                self._recorded.move_to_end(record_text)
                return self._recorded[record_text], False
            self._recorded[record_text] = embedder = self._make(record_text)
            while len(self._recorded) > _MAX_MODELS:
                self._recorded.popitem(last=False)
            return embedder, True

    def _make(self, record_text: str) -> GuardedEmbedder | None:
        record = EmbedderRecord.decode(record_text)
        if record is None:
            return None
        configured = self._configured.inner if self._configured is not None else None
        try:
            embedder = recorded_embedder(record, self._settings, configured)
        except ForeignEndpoint as error:
            log.warning("recorded_endpoint_refused", error=str(error))
            return None
        if embedder is None:
            return None
        wait_seconds = self._settings.recall_wait_seconds
        return GuardedEmbedder(embedder, recall_wait_seconds=wait_seconds, observe=self._observe)

    def _prepare(self, generation: Generation) -> None:
        """Load the next model while the old one is still in use, so that no recall waits for it at the switch."""
        if not generation.embedder:
            return
        embedder, new = self._recorded_embedder(generation.embedder)
        if new and embedder is not None:
            threading.Thread(target=_load, args=(embedder,), name="next-embedder", daemon=True).start()


def _load(embedder: GuardedEmbedder) -> None:
    try:
        embedder.load()
    except Unavailable as error:
        log.warning("next_embedder_not_ready", model=embedder.model, error=str(error))
