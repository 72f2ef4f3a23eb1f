"""Helpers for tests of dream sweeps: a store with memories, messages and recalls at chosen times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import text

from adapters.workspace_git import GitFolders
from memory.jobs import RunOptions
from memory.secrets import looks_secret
from memory.upkeep.dream_sweep import dream_sweep
from memory.upkeep.dreaming import DreamRules
from memory.upkeep.notebook import Notebooks
from reverie.clock import DAY_MICROS, new_id, now_micros
from storage.curation import CurationEntry
from storage.lifecycle.undo import undo
from storage.memories.records import MemoryRecord, NewMemory
from storage.recall.events import NewRecall
from storage.upkeep.dreams import Promotion
from support.pipeline import WORKSPACE, Pipeline

QUESTIONS = ("where does she live", "which city", "what about Lisbon", "her home", "does she like it there")


class Dreamer(Pipeline):
    """A workspace whose current time is forty days after its creation, so that it has a history."""

    def __init__(self, data: Path, *, repositories: GitFolders | None = None, **more: Any) -> None:
        super().__init__(data, **more)
        self.began = now_micros()
        self.today = self.began + 40 * DAY_MICROS
        self.repositories = repositories if repositories is not None else GitFolders(data, looks_secret)
        self.notebooks = Notebooks(self.repositories)

    def remember(self, content: str, *, agent: str = "ana", **fields: Any) -> MemoryRecord:
        """Store a memory and have the pipeline index it."""
        values = {"id": new_id(), "created_at": self.began, **fields}
        with self.store.writing() as tx:
            made = tx.for_agent(agent).memories.add(NewMemory(content=content, **values), now=self.began)
        self.settle()
        return made

    def chunk_of(self, content: str, *, agent: str = "ana") -> int:
        """Return the id of the first chunk that contains a text."""
        with self.store.reading() as tx:
            found = tx.connection.execute(
                text("SELECT min(id) FROM chunks WHERE agent_id = :agent AND instr(text, :text) > 0"),
                {"agent": agent, "text": content},
            ).scalar_one()
        assert found is not None, content
        return int(found)

    def recalled(
        self,
        *chunks: int,
        query: str = "what",
        score: float = 0.8,
        days_ago: float = 1.0,
        agent: str = "ana",
        recall: str | None = None,
        user: str | None = None,
    ) -> None:
        """Record one recall that found these chunks."""
        at = self.today - int(days_ago * DAY_MICROS)
        with self.store.writing() as tx:
            tx.recalls.record(
                [NewRecall(agent, recall or new_id(), query, at, tuple((c, score) for c in chunks), user)]
            )

    def make_hot(
        self, content: str, *, agent: str = "ana", queries: Sequence[str] = QUESTIONS, score: float = 0.8
    ) -> None:
        """Record a recall of a text by each query, one per day, the latest yesterday."""
        chunk = self.chunk_of(content, agent=agent)
        for number, query in enumerate(queries):
            self.recalled(chunk, query=query, score=score, days_ago=1.0 + number, agent=agent)

    def dream(self, *, dry_run: bool = False, **rules: Any) -> dict[str, Any]:
        """Run a dream sweep today and return its counts."""
        found = dream_sweep(
            self.stores, self.notebooks, rules=DreamRules(**rules), now=self.today, options=RunOptions(dry_run)
        )
        found.pop("stores", None)
        return found

    def ledger(self, *, agent: str = "ana") -> list[Promotion]:
        with self.store.reading() as tx:
            return tx.for_agent(agent).dreams.ledger()

    def memory(self, memory_id: str, *, agent: str = "ana") -> MemoryRecord:
        with self.store.reading() as tx:
            return tx.for_agent(agent).memories.get(memory_id)

    def all_memories(self, *, agent: str = "ana") -> list[MemoryRecord]:
        with self.store.reading() as tx:
            return list(tx.for_agent(agent).memories.iterate())

    def curations(self, *, agent: str = "ana") -> list[CurationEntry]:
        with self.store.reading() as tx:
            return tx.for_agent(agent).curation.page()

    def undo(self, entry: CurationEntry) -> None:
        """Undo an entry of the curation log."""
        with self.store.writing() as tx:
            undo(tx.connection, entry, at=self.today)

    def files(self, *, agent: str = "ana") -> dict[str, str]:
        return self.repositories.repository(WORKSPACE, agent).files()

    def commits(self, *, agent: str = "ana") -> list[str]:
        return [commit.message for commit in self.repositories.repository(WORKSPACE, agent).history(100)]
