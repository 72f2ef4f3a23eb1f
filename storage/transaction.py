"""One transaction on a store, with its repositories; each repository is made when it is first used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from storage.curation import CurationLog
from storage.engines import Connection
from storage.index.forward import ForwardIndex
from storage.index.search_index import SearchIndex
from storage.items import Items, WaitingItems
from storage.leases import ContentMark, JobLeases
from storage.lifecycle.erased_rows import Candidates, ErasedRows, StoredTexts
from storage.lifecycle.exported_rows import ExportedRows
from storage.lifecycle.imported_rows import ImportedRows
from storage.lifecycle.removal import Removal
from storage.lifecycle.withdrawn import KeptOut, Marks, Withdrawn
from storage.memories.instructions import StandingInstructions
from storage.memories.memories import AllMemories, Memories
from storage.memories.provenance import Provenances
from storage.pipeline.broker_content import BrokerContent
from storage.pipeline.chunks import Chunks
from storage.pipeline.dead_letters import DeadLetters
from storage.pipeline.files import Files, ForgottenFiles
from storage.pipeline.messages import Messages
from storage.pipeline.work import WorkQueue
from storage.recall.captured import CapturedQueries
from storage.recall.chunk_sources import ChunkSources, PastMemories
from storage.recall.events import AllContexts, Contexts, RecallEvents, RecallHistory
from storage.repository import AgentRepository
from storage.scheduling.deliveries import AllNotifications, AllReminders, Notifications, Reminders
from storage.scheduling.runs import OpenRuns, ScheduleRuns
from storage.scheduling.schedules import DueSchedules, GoalVectors, Schedules
from storage.sessions.channels import Channels
from storage.sessions.scratchpads import Scratchpads
from storage.sessions.sessions import AllSessionLifecycles, ForgottenSessions, SessionLifecycle, Sessions
from storage.sessions.summaries import AllSummaries, Summaries
from storage.trust.tokens import WebhookRotations
from storage.upkeep.dreams import AllDreams, Dreams
from storage.upkeep.retention import Expiry, Retention
from storage.viewer import Viewer

T = TypeVar("T")


class _Lazy(Generic[T]):
    """An attribute that makes a repository of its owner's arguments when it is first read, and keeps it."""

    def __init__(self, repository: Callable[..., T]) -> None:
        self._repository = repository

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Transaction | AgentRepositories, _type: type) -> T:
        repository: T = self._repository(*owner._arguments)
        if owner.viewer is not None and isinstance(repository, AgentRepository):
            repository.restrict_to(owner.viewer)
        owner.__dict__[self._name] = repository  # from now on, this attribute is found before the descriptor
        return repository


class AgentRepositories:
    """The repositories of one agent within one transaction: none of their queries reaches another agent's rows.

    With a viewer, only rows that this user may see are read.
    """

    sessions = _Lazy(Sessions)
    session_lifecycle = _Lazy(SessionLifecycle)
    channels = _Lazy(Channels)
    scratchpads = _Lazy(Scratchpads)
    messages = _Lazy(Messages)
    items = _Lazy(Items)
    files = _Lazy(Files)
    memories = _Lazy(Memories)
    instructions = _Lazy(StandingInstructions)
    curation = _Lazy(CurationLog)
    dreams = _Lazy(Dreams)
    summaries = _Lazy(Summaries)
    chunk_sources = _Lazy(ChunkSources)
    forward = _Lazy(ForwardIndex)
    past_memories = _Lazy(PastMemories)
    provenances = _Lazy(Provenances)
    recalls = _Lazy(RecallHistory)
    contexts = _Lazy(Contexts)
    dead_letters = _Lazy(DeadLetters)
    schedules = _Lazy(Schedules)
    runs = _Lazy(ScheduleRuns)
    reminders = _Lazy(Reminders)
    notifications = _Lazy(Notifications)
    marks = _Lazy(Marks)
    erased = _Lazy(ErasedRows)
    exported = _Lazy(ExportedRows)
    imported = _Lazy(ImportedRows)
    candidates = _Lazy(Candidates)
    removal = _Lazy(Removal)

    def __init__(self, connection: Connection, agent: str, viewer: Viewer | None = None) -> None:
        self.agent = agent
        self.viewer = viewer
        self.connection = connection
        self._arguments = (connection, agent)


class Transaction:
    """One transaction on a store, with the repositories that cross agents."""

    work = _Lazy(WorkQueue)
    chunks = _Lazy(Chunks)
    index = _Lazy(SearchIndex)
    recalls = _Lazy(RecallEvents)
    contexts = _Lazy(AllContexts)
    captured = _Lazy(CapturedQueries)
    memories = _Lazy(AllMemories)
    curation = _Lazy(CurationLog)
    dreams = _Lazy(AllDreams)
    leases = _Lazy(JobLeases)
    content = _Lazy(ContentMark)
    session_lifecycles = _Lazy(AllSessionLifecycles)
    forgotten_sessions = _Lazy(ForgottenSessions)
    forgotten_files = _Lazy(ForgottenFiles)
    retention = _Lazy(Retention)
    expiry = _Lazy(Expiry)
    summaries = _Lazy(AllSummaries)
    dead_letters = _Lazy(DeadLetters)
    due_schedules = _Lazy(DueSchedules)
    open_runs = _Lazy(OpenRuns)
    goal_vectors = _Lazy(GoalVectors)
    waiting_items = _Lazy(WaitingItems)
    reminders = _Lazy(AllReminders)
    notifications = _Lazy(AllNotifications)
    kept_out = _Lazy(KeptOut)
    broker_content = _Lazy(BrokerContent)
    stored_texts = _Lazy(StoredTexts)
    withdrawn = _Lazy(Withdrawn)
    webhook_rotations = _Lazy(WebhookRotations)

    def __init__(self, connection: Connection, viewer: Viewer | None = None, began: float = -math.inf) -> None:
        self.connection = connection
        self.viewer = viewer
        # On the monotonic clock: the transaction sees everything that was committed before this time.
        self.began = began
        self._arguments: tuple[Any, ...] = (connection,)

    def for_agent(self, agent: str) -> AgentRepositories:
        """Return the repositories of one agent in this transaction, as its viewer sees them."""
        return AgentRepositories(self.connection, agent, self.viewer)

    def for_everybody(self, agent: str) -> AgentRepositories:
        """Return the repositories of one agent in this transaction without a viewer, for callers with own checks."""
        return AgentRepositories(self.connection, agent)
