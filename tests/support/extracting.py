"""Helpers for tests of extraction: answers of a model, an extractor, and sweeps."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from adapters.language_models import LanguageModel
from memory.idle_stores import IdleStores
from memory.jobs import JobReport, run_on_store
from memory.memories.extraction import Extractor, extract_due, extract_memories, extract_session
from memory.memories.extraction_windows import ExtractionRules
from reverie import contract
from storage.memories.records import MemoryFilter, MemoryRecord
from support.pipeline import Pipeline


def memory(content: str = "User plays the oboe.", evidence: str = "m1", **changes: Any) -> dict[str, Any]:
    """Return one memory as a model would return it."""
    fields: dict[str, Any] = {
        "content": content,
        "kind": "preference",
        "evidence": [evidence],
        "confidence": 0.9,
        "importance": 0.6,
        "subject": None,
        "category": None,
        "key": None,
        "value": None,
        "tags": [],
        "tier": None,
        "expires_at": None,
    }
    return {**fields, **changes}


def answer(*memories: dict[str, Any]) -> str:
    """Return a model's answer with these memories."""
    return json.dumps({"memories": list(memories)})


class Extracting:
    """Extraction on the workspace of a pipeline; `notified` has the stores whose chunk stage was notified."""

    def __init__(self, pipeline: Pipeline, model: LanguageModel | None = None, **rules: Any) -> None:
        self.pipeline = pipeline
        self.notified: list[str] = []
        self.extractor = Extractor(
            ExtractionRules(**rules), model, pipeline.stores.account_store, lambda name: self.notified.append(name)
        )

    def sweep(self, *, dry_run: bool = False) -> Counter[str]:
        """Run one sweep of the workspace, even if it counts as idle."""
        return self.sweep_report(dry_run=dry_run).counts

    def sweep_report(self, *, dry_run: bool = False) -> JobReport:
        """Run one sweep of the workspace, even if it counts as idle; also return what a dry run would change."""
        return run_on_store(
            self.pipeline.store,
            contract.EXTRACT_MEMORIES,
            lambda run: extract_due(run, self.extractor),
            now=self.pipeline.now(),
            dry_run=dry_run,
        )

    def sweep_all(self, idle_stores: IdleStores) -> dict[str, Any]:
        """Run one sweep of every workspace that does not count as idle."""
        return extract_memories(self.pipeline.stores, self.extractor, now=self.pipeline.now(), idle_stores=idle_stores)

    def close(self, session: str = "s", *, agent: str = "ana") -> Counter[str]:
        """Extract from a session as closing it does."""
        return extract_session(
            self.pipeline.store, self.extractor, agent=agent, session=session, now=self.pipeline.now()
        )

    def memories(self, *, agent: str = "ana", account: bool = False, active: bool | None = True) -> list[MemoryRecord]:
        """Return the memories, oldest first."""
        store = self.pipeline.stores.account_store() if account else self.pipeline.store
        with store.reading() as tx:
            return list(tx.for_agent(agent).memories.iterate(MemoryFilter(active=active)))

    def contents(self, **which: Any) -> list[str]:
        """Return the texts of the memories."""
        return [found.content for found in self.memories(**which)]


def tell(pipeline: Pipeline, *messages: str | dict[str, Any], silent_seconds: float = 60.0, **where: Any) -> list[str]:
    """Store messages and advance the clock; return the ids of the messages."""
    ids = pipeline.say(*messages, **where)
    pipeline.drain(lambda: pipeline.ingest().taken)
    pipeline.advance(silent_seconds)
    return ids
