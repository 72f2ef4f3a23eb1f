"""Which embedder a workspace needs: the one that made its vectors, whatever the settings name.

A change of model is seen by every process the next time it looks, without a restart. Invariant: a model is loaded
once in a process, however many workspaces and revisions use it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import structlog

from adapters.embedders.base import EmbedderSpec
from adapters.embedders.record import EmbedderRecord, recorded_embedder
from adapters.embedders.resilience import GuardedEmbedder
from reverie.errors import Unavailable
from storage.recall.index import Generation
from storage.stores import Store

# Beside that of the settings. A model takes hundreds of megabytes; workspaces of more models than this load in turns.
_MODELS_KEPT: Final = 4

log = structlog.get_logger(__name__)


class StoreEmbedders:
    """The embedders of one process by workspace. Safe to use from several threads."""

    def __init__(self, settings: EmbedderSpec, configured: GuardedEmbedder | None) -> None:
        self._settings = settings
        self._configured = configured
        self._recorded: OrderedDict[str, GuardedEmbedder | None] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, store: Store) -> GuardedEmbedder | None:
        """The embedder of the vectors that a store searches, not necessarily loaded; None where words must do.

        That is the configured one where there are no vectors yet, where it made them, and where the store does not
        say how to make another: then recall and the embed stage find that it does not fit. Settings that name no
        embedder hold for every workspace.
        """
        if self._configured is None:
            return None
        with store.reading() as tx:
            vectors = [generation for generation in tx.index.generations() if generation.kind == "vector"]
        for generation in vectors:
            if generation.state == "building" and not self._is_configured(generation):
                self._prepare(generation)
        active = next((generation for generation in vectors if generation.state == "active"), None)
        if active is None or not active.embedder or self._is_configured(active):
            return self._configured
        return self._made(active.embedder)[0] or self._configured

    def _is_configured(self, generation: Generation) -> bool:
        configured = self._configured
        # Some models know their dimension once they are loaded; whoever uses one compares again then.
        return (
            configured is not None
            and configured.model == generation.model
            and configured.dimension in (0, generation.dim)
        )

    def _made(self, written: str) -> tuple[GuardedEmbedder | None, bool]:
        """The embedder of a record, and whether it was made just now."""
        with self._lock:
            if written in self._recorded:
                self._recorded.move_to_end(written)
                return self._recorded[written], False
            self._recorded[written] = made = self._make(written)
            while len(self._recorded) > _MODELS_KEPT:
                self._recorded.popitem(last=False)
            return made, True

    def _make(self, written: str) -> GuardedEmbedder | None:
        record = EmbedderRecord.decode(written)
        if record is None:
            return None
        configured = self._configured.inner if self._configured is not None else None
        embedder = recorded_embedder(record, self._settings, configured)
        return GuardedEmbedder(embedder) if embedder is not None else None

    def _prepare(self, generation: Generation) -> None:
        """Load the next model while the old one is still searched: no recall shall wait for it at the switch."""
        if not generation.embedder:
            return
        embedder, new = self._made(generation.embedder)
        if new and embedder is not None:
            threading.Thread(target=_load, args=(embedder,), name="next-embedder", daemon=True).start()


def _load(embedder: GuardedEmbedder) -> None:
    try:
        embedder.load()
    except Unavailable as error:
        log.warning("next_embedder_not_ready", model=embedder.model, error=str(error))
