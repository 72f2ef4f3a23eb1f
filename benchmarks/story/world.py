"""A world with a clock of its own: the real pipeline, recall and tasks, at a simulated time.

No broker is used: messages pass through the stages at once, and the results of a recall are recorded at the time of the
recall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.harness.haystack import DatasetMessage
from benchmarks.harness.local import LocalInbox, NoWorkingMemory
from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import remember
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from memory.pipeline.ingest import IngestServices, ingest_batch
from memory.stage import StageReport
from retrieval.context.select import ContextRequest
from retrieval.context.write import BuiltContext, build_context
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from reverie.clock import to_micros
from reverie.memories.calls import check_memory
from reverie.memories.types import MemoryDraft
from reverie.pipeline.submission import build_messages, build_session
from reverie.recall.types import FoundSessions
from server.recall import INSTRUCTION_TOKENS, MAX_CONTEXT_MEMORIES
from server.services import RECALL_EVENT_MIN_SCORE
from storage.memories.records import MemoryRecord
from storage.recall.events import NewRecall
from storage.stores import Store
from worker.app import app, use_runtime
from worker.runtime import Runtime
from worker.scheduling.goal_context import CONTEXT_MIN_SCORE
from worker.settings import Settings, load_settings

WORKSPACE: Final = "story"


def _ignore(_: object) -> None:
    """Notify nobody."""


_NOBODY_TOLD: Final = EmbedHooks(lambda: None, lambda _ids, _why: None)


class ClockedRuntime(Runtime):
    """A process's resources with a settable clock and without notifications: the world runs the stages itself."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.moment = 0

    def now(self) -> int:
        """Return the simulated time in microseconds."""
        return self.moment

    def steady(self) -> int:
        """Return the simulated time in microseconds, as if all of it had passed: so the clock was never set."""
        return self.moment

    def _notify(self, must_be_sent: Callable[[str, str], bool], stage: str, workspace: str, *, trace: str = "") -> None:
        """Send nothing."""


@dataclass(slots=True)
class World:
    """One workspace and the account, at a time that only `at` changes.

    `remembered` has every memory written by `remember`, as it was then.
    """

    runtime: ClockedRuntime
    recalls: int = 0
    remembered: dict[str, MemoryRecord] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The workspace."""
        return self.runtime.store(WORKSPACE)

    @property
    def stores(self) -> tuple[Store, Store]:
        """The workspace and the account."""
        return self.store, self.runtime.stores.account_store()

    @property
    def now(self) -> int:
        """Return the present time in microseconds."""
        return self.runtime.moment

    def at(self, moment: int) -> None:
        """Set the time; it never goes back."""
        self.runtime.moment = max(self.runtime.moment, moment)

    def say(self, agent: str, session: str, messages: Sequence[DatasetMessage]) -> None:
        """Store turns now and make them searchable."""
        inbox, working = LocalInbox(), NoWorkingMemory()
        payloads, rejected = build_messages(
            [message.as_message() for message in messages if message.content],
            agent=agent,
            session_input=build_session({"session": session}),
            trace="story",
        )
        if rejected:
            raise RuntimeError(f"session {session} of {agent}: {rejected[0].error}")
        inbox.accept(WORKSPACE, payloads)
        while ingest_batch(IngestServices(inbox, working), self.store, now=self.now).taken:
            pass
        self.settle()

    def settle(self) -> None:
        """Chunk, embed and index everything that waits, in the workspace and in the account."""
        now = self.runtime.now
        for store in self.stores:
            _drain(partial(chunk_messages, store, now=now, on_batch=_ignore))
            embedder = self.runtime.embedder_for(store)
            if embedder is not None:
                _drain(partial(embed_chunks, store, embedder, now=now, hooks=_NOBODY_TOLD))
            _drain(partial(index_chunks, store, now=now, on_indexed=_ignore))

    def recall(self, agent: str, query: str, *, limit: int = 5, noted: bool = True, **more: Any) -> RecallOutcome:
        """Recall as an agent does; `noted` records the results."""
        request = RecallRequest(query=query, agent=agent, limit=limit, **more)
        found = self.runtime.recaller.recall(WORKSPACE, request)
        if noted:
            self.recalls += 1
            self._note(agent, query, found)
        return found

    def context(self, agent: str, session: str, query: str, *, tokens: int) -> BuiltContext:
        """Return the context of a session as the server builds it, without recording it."""
        settings = self.runtime.settings
        request = ContextRequest(
            agent=agent,
            session=session,
            query=query,
            channel=None,
            recency_window=settings.recency_window,
            max_messages=settings.max_context_messages,
            max_memories=MAX_CONTEXT_MEMORIES,
            min_best=CONTEXT_MIN_SCORE,
            instruction_tokens=INSTRUCTION_TOKENS,
            rates=settings.decay_rates,
            now=self.now,
        )
        workspace, account = self.stores
        search = partial(self.runtime.recaller.embedding_once().recall, WORKSPACE)
        counter = self.runtime.tokens
        return build_context(workspace, search, counter, request, room=tokens, refiner=None, account=account)

    def search_sessions(self, agent: str, query: str, *, limit: int) -> FoundSessions:
        """Search for sessions."""
        request = RecallRequest(query=query, agent=agent, limit=limit)
        return self.runtime.recaller.search_sessions(WORKSPACE, request)

    def remember(self, agent: str, draft: MemoryDraft) -> str:
        """Store a memory now, as an agent's call does, and return its id."""
        remembered = remember(
            AgentMemories(self.runtime.stores, WORKSPACE, agent), check_memory(draft, now=self.now), now=self.now
        )
        self.settle()
        self.remembered[remembered.record.id] = remembered.record
        return remembered.record.id

    def run(self, task: str) -> Mapping[str, Any]:
        """Run a periodic task now, as `reverie run` does, and make its results searchable."""
        counts: Mapping[str, Any] = app.tasks[task].body(manual=True)
        self.settle()
        return counts

    def _note(self, agent: str, query: str, found: RecallOutcome) -> None:
        """Record the results that fit as the server and the recording task do, each hit in its store."""
        for store in self.stores:
            fitting = [hit for hit in (*found.hits, *found.folded) if hit.relevance >= RECALL_EVENT_MIN_SCORE]
            hits = [(hit.chunk_id, hit.score) for hit in fitting if hit.store == store.name]
            if hits:
                note = NewRecall(agent, f"recall-{self.recalls}", query, self.now, tuple(hits))
                with store.writing() as tx:
                    tx.recalls.record([note])


@contextmanager
def opened(settings: Mapping[str, Any]) -> Iterator[World]:
    """Yield a world in a folder of its own, which is removed at the end. The tasks of this process work in it.

    With `REVERIE_DATABASE` it is in that database, which has to be empty, and is so again at the end.
    """
    with TemporaryDirectory(prefix="rv-story-") as folder, ExitStack() as entered:
        chosen = load_settings(data=Path(folder) / "data", log_level="warning", **settings)
        if chosen.database is not None:
            from benchmarks.harness.postgres import emptied_after  # its packages are needed with PostgreSQL only

            entered.enter_context(emptied_after(chosen.database))
        runtime = ClockedRuntime(chosen)
        app.loader.import_default_modules()
        with use_runtime(runtime):
            try:
                yield World(runtime)
            finally:
                runtime.close()


def micros(moment: datetime) -> int:
    """Return a time in microseconds."""
    return to_micros(moment)


def _drain(stage: Callable[[], StageReport]) -> None:
    while stage().more:
        pass
