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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverie.client import AsyncReverie, Reverie
    from reverie.errors import (
        Conflict,
        NotFound,
        Permanent,
        Rejected,
        Rejection,
        ReverieError,
        Transient,
        Unavailable,
        WaitTimeout,
    )
    from reverie.items.types import FoundItem, FoundItems, Item, ItemOutcome
    from reverie.memories.tool import MEMORY_TOOL, memory_tool, memory_tool_async
    from reverie.memories.types import Fact, FoundMemories, Memory, MemoryStats, Note, Remembered
    from reverie.pipeline.status import PipelineStatus
    from reverie.pipeline.types import DeadLetter, Receipt
    from reverie.recall.types import Context, Explanation, RecallResponse, RecallResult, Restored, RetrieverScore
    from reverie.scheduling.agent_worker import AgentWorker
    from reverie.scheduling.cadence import (
        Cron,
        Interval,
        Once,
        format_in_timezone,
        next_run_for_cadence,
        parse_cadence,
        validate_cadence,
    )
    from reverie.scheduling.notification_types import Notification, NotificationPage
    from reverie.scheduling.reminder_types import ClaimedReminder, Reminder, ReminderPage
    from reverie.scheduling.schedule_types import (
        LlmExecutor,
        NextRuns,
        RunReport,
        Schedule,
        SchedulePage,
        ScheduleRun,
        TaskExecutor,
        WebhookExecutor,
    )
    from reverie.sessions.channel_types import Channel
    from reverie.sessions.scratchpad_types import ScratchpadEntry
    from reverie.sessions.types import Compacted, Message, Session, SessionExport, SessionSummary
    from reverie.trust.erasure_types import Erasure, ErasureReceipt
    from reverie.upkeep.curation_types import CurationChange, CurationEntry, Undone
    from reverie.upkeep.notebook_types import Checkpoint, Commit, Promotion

__version__ = "0.1.0"

__all__ = [
    "MEMORY_TOOL",
    "AgentWorker",
    "AsyncReverie",
    "Channel",
    "Checkpoint",
    "ClaimedReminder",
    "Commit",
    "Compacted",
    "Conflict",
    "Context",
    "Cron",
    "CurationChange",
    "CurationEntry",
    "DeadLetter",
    "Erasure",
    "ErasureReceipt",
    "Explanation",
    "Fact",
    "FoundItem",
    "FoundItems",
    "FoundMemories",
    "Interval",
    "Item",
    "ItemOutcome",
    "LlmExecutor",
    "Memory",
    "MemoryStats",
    "Message",
    "NextRuns",
    "NotFound",
    "Note",
    "Notification",
    "NotificationPage",
    "Once",
    "Permanent",
    "PipelineStatus",
    "Promotion",
    "RecallResponse",
    "RecallResult",
    "Receipt",
    "Rejected",
    "Rejection",
    "Remembered",
    "Reminder",
    "ReminderPage",
    "Restored",
    "RetrieverScore",
    "Reverie",
    "ReverieError",
    "RunReport",
    "Schedule",
    "SchedulePage",
    "ScheduleRun",
    "ScratchpadEntry",
    "Session",
    "SessionExport",
    "SessionSummary",
    "TaskExecutor",
    "Transient",
    "Unavailable",
    "Undone",
    "WaitTimeout",
    "WebhookExecutor",
    "__version__",
    "format_in_timezone",
    "memory_tool",
    "memory_tool_async",
    "next_run_for_cadence",
    "parse_cadence",
    "validate_cadence",
]

_MODULES = {
    "Reverie": "client",
    "AsyncReverie": "client",
    "PipelineStatus": "pipeline.status",
    **dict.fromkeys(
        (
            "Conflict",
            "NotFound",
            "Permanent",
            "Rejected",
            "Rejection",
            "ReverieError",
            "Transient",
            "Unavailable",
            "WaitTimeout",
        ),
        "errors",
    ),
    **dict.fromkeys(("DeadLetter", "Receipt"), "pipeline.types"),
    **dict.fromkeys(("Compacted", "Message", "Session", "SessionExport", "SessionSummary"), "sessions.types"),
    **dict.fromkeys(
        ("Context", "Explanation", "RecallResponse", "RecallResult", "Restored", "RetrieverScore"), "recall.types"
    ),
    **dict.fromkeys(("FoundItem", "FoundItems", "Item", "ItemOutcome"), "items.types"),
    **dict.fromkeys(("MEMORY_TOOL", "memory_tool", "memory_tool_async"), "memories.tool"),
    **dict.fromkeys(("AgentWorker",), "scheduling.agent_worker"),
    "RunReport": "scheduling.schedule_types",
    **dict.fromkeys(("Fact", "FoundMemories", "Memory", "MemoryStats", "Note", "Remembered"), "memories.types"),
    **dict.fromkeys(("Checkpoint", "Commit", "Promotion"), "upkeep.notebook_types"),
    **dict.fromkeys(("Erasure", "ErasureReceipt"), "trust.erasure_types"),
    "Channel": "sessions.channel_types",
    "ScratchpadEntry": "sessions.scratchpad_types",
    **dict.fromkeys(("Cron", "Interval", "Once"), "scheduling.cadence_types"),
    **dict.fromkeys(
        ("format_in_timezone", "next_run_for_cadence", "parse_cadence", "validate_cadence"), "scheduling.cadence"
    ),
    **dict.fromkeys(
        ("LlmExecutor", "NextRuns", "Schedule", "SchedulePage", "ScheduleRun", "TaskExecutor", "WebhookExecutor"),
        "scheduling.schedule_types",
    ),
    **dict.fromkeys(("ClaimedReminder", "Reminder", "ReminderPage"), "scheduling.reminder_types"),
    **dict.fromkeys(("Notification", "NotificationPage"), "scheduling.notification_types"),
    **dict.fromkeys(("CurationChange", "CurationEntry", "Undone"), "upkeep.curation_types"),
}


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
