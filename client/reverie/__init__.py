"""Reverie: a memory pipeline for AI agents. This is the light client.

    from reverie import Reverie
    memory = Reverie(agent="ana")
    memory.ingest("chat-42", [{"role": "user", "content": "I moved to Lisbon in May."}])
    memory.recall("where does she live?")
    stored = memory.remember("Kate takes oat milk", tags=["coffee"])
    memory.forget(stored.id)

Importing it is cheap: each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from reverie.client import AsyncReverie as AsyncReverie
    from reverie.client import Reverie as Reverie
    from reverie.errors import Conflict as Conflict
    from reverie.errors import NotFound as NotFound
    from reverie.errors import Permanent as Permanent
    from reverie.errors import Rejected as Rejected
    from reverie.errors import Rejection as Rejection
    from reverie.errors import ReverieError as ReverieError
    from reverie.errors import Transient as Transient
    from reverie.errors import Unavailable as Unavailable
    from reverie.errors import WaitTimeout as WaitTimeout
    from reverie.items import FoundItem as FoundItem
    from reverie.items import FoundItems as FoundItems
    from reverie.items import Item as Item
    from reverie.items import ItemOutcome as ItemOutcome
    from reverie.memories.tool import MEMORY_TOOL as MEMORY_TOOL
    from reverie.memories.tool import memory_tool as memory_tool
    from reverie.memories.tool import memory_tool_async as memory_tool_async
    from reverie.memories.types import Fact as Fact
    from reverie.memories.types import FoundMemories as FoundMemories
    from reverie.memories.types import Memory as Memory
    from reverie.memories.types import MemoryStats as MemoryStats
    from reverie.memories.types import Note as Note
    from reverie.memories.types import Remembered as Remembered
    from reverie.pipeline.calls import DeadLetter as DeadLetter
    from reverie.pipeline.calls import Receipt as Receipt
    from reverie.pipeline.status import PipelineStatus as PipelineStatus
    from reverie.pipeline.submission import MessageDict as MessageDict
    from reverie.recall.types import Context as Context
    from reverie.recall.types import Explanation as Explanation
    from reverie.recall.types import RecallResponse as RecallResponse
    from reverie.recall.types import RecallResult as RecallResult
    from reverie.recall.types import Restored as Restored
    from reverie.recall.types import RetrieverScore as RetrieverScore
    from reverie.scheduling.agent_worker import AgentWorker as AgentWorker
    from reverie.scheduling.cadence import format_in_timezone as format_in_timezone
    from reverie.scheduling.cadence import next_run_for_cadence as next_run_for_cadence
    from reverie.scheduling.cadence import parse_cadence as parse_cadence
    from reverie.scheduling.cadence import validate_cadence as validate_cadence
    from reverie.scheduling.types import ClaimedReminder as ClaimedReminder
    from reverie.scheduling.types import Cron as Cron
    from reverie.scheduling.types import Interval as Interval
    from reverie.scheduling.types import LlmExecutor as LlmExecutor
    from reverie.scheduling.types import NextRuns as NextRuns
    from reverie.scheduling.types import Notification as Notification
    from reverie.scheduling.types import NotificationPage as NotificationPage
    from reverie.scheduling.types import Once as Once
    from reverie.scheduling.types import Reminder as Reminder
    from reverie.scheduling.types import ReminderPage as ReminderPage
    from reverie.scheduling.types import RunReport as RunReport
    from reverie.scheduling.types import Schedule as Schedule
    from reverie.scheduling.types import SchedulePage as SchedulePage
    from reverie.scheduling.types import ScheduleRun as ScheduleRun
    from reverie.scheduling.types import TaskExecutor as TaskExecutor
    from reverie.scheduling.types import WebhookExecutor as WebhookExecutor
    from reverie.sessions.types import Channel as Channel
    from reverie.sessions.types import Compacted as Compacted
    from reverie.sessions.types import Message as Message
    from reverie.sessions.types import ScratchpadEntry as ScratchpadEntry
    from reverie.sessions.types import Session as Session
    from reverie.sessions.types import SessionExport as SessionExport
    from reverie.sessions.types import SessionSummary as SessionSummary
    from reverie.trust.calls import Erasure as Erasure
    from reverie.trust.calls import ErasureReceipt as ErasureReceipt
    from reverie.upkeep import Checkpoint as Checkpoint
    from reverie.upkeep import Commit as Commit
    from reverie.upkeep import CurationChange as CurationChange
    from reverie.upkeep import CurationEntry as CurationEntry
    from reverie.upkeep import CurationRun as CurationRun
    from reverie.upkeep import Promotion as Promotion
    from reverie.upkeep import Undone as Undone

__version__ = "0.1.0"

# The public names, by the module that has them.
_NAMES: Final = {
    "client": "AsyncReverie Reverie",
    "errors": "Conflict NotFound Permanent Rejected Rejection ReverieError Transient Unavailable WaitTimeout",
    "items": "FoundItem FoundItems Item ItemOutcome",
    "memories.tool": "MEMORY_TOOL memory_tool memory_tool_async",
    "memories.types": "Fact FoundMemories Memory MemoryStats Note Remembered",
    "pipeline.calls": "DeadLetter Receipt",
    "pipeline.status": "PipelineStatus",
    "pipeline.submission": "MessageDict",
    "recall.types": "Context Explanation RecallResponse RecallResult Restored RetrieverScore",
    "scheduling.agent_worker": "AgentWorker",
    "scheduling.cadence": "format_in_timezone next_run_for_cadence parse_cadence validate_cadence",
    "scheduling.types": (
        "ClaimedReminder Cron Interval LlmExecutor NextRuns Notification NotificationPage Once Reminder ReminderPage"
        " RunReport Schedule SchedulePage ScheduleRun TaskExecutor WebhookExecutor"
    ),
    "sessions.types": "Channel Compacted Message ScratchpadEntry Session SessionExport SessionSummary",
    "trust.calls": "Erasure ErasureReceipt",
    "upkeep": "Checkpoint Commit CurationChange CurationEntry CurationRun Promotion Undone",
}
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that holds it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'reverie' has no attribute {name!r}")
    value = getattr(import_module(f"reverie.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
