"""The OpenAPI document at /docs, made from the very structs that requests are decoded into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from reverie.memories.types import (
    Fact,
    FactDraft,
    FactList,
    FoundMemories,
    Memory,
    MemoryChanges,
    MemoryList,
    MemoryStats,
    Note,
    NoteChanges,
    NoteDraft,
    NoteList,
    Remembered,
)
from reverie.pipeline.status import PipelineStatus
from reverie.problems import CONTENT_TYPE, Problem
from reverie.scheduling.notification_types import Acknowledged, Acknowledgement, NotificationPage
from reverie.scheduling.reminder_types import (
    ClaimedReminders,
    Reminder,
    ReminderClaim,
    ReminderDelivered,
    ReminderDraft,
    ReminderPage,
)
from reverie.scheduling.schedule_types import (
    NextRuns,
    RunReport,
    RunRequest,
    Schedule,
    ScheduleCount,
    SchedulePage,
    ScheduleRun,
    ScheduleRunList,
)
from reverie.sessions.channel_types import Channel, ChannelDescription, ChannelDraft, ChannelList, ChannelMove
from reverie.sessions.scratchpad_types import (
    Cleared,
    ScratchpadEntries,
    ScratchpadEntry,
    ScratchpadItems,
    ScratchpadList,
    ScratchpadValue,
)
from reverie.types import (
    Compacted,
    Context,
    DeadLetter,
    DeadLetterList,
    Deleted,
    FoundSessions,
    MessageList,
    RecallEventList,
    RecallResponse,
    Receipt,
    Restored,
    Session,
    SessionExport,
    SessionList,
    SessionSummary,
)
from reverie.upkeep.curation_types import CurationEntry, CurationList, UndoBody, Undone
from reverie.upkeep.notebook_types import Checkpoint, CommitList, Difference, PromotionList
from server.bodies import (
    ArchiveBody,
    CheckpointBody,
    ContextBody,
    FileBody,
    MessagesBody,
    RecallBody,
    RestoreBody,
    SessionSearchBody,
    StartBody,
)
from server.caller import AGENT_HEADER, TRACE_HEADER, WORKSPACE_HEADER
from server.memories.bodies import MemoryBody, MemorySearchBody
from server.scheduling.bodies import ScheduleBody, ScheduleChangesBody

_STRUCTS: Final = (
    MessagesBody, FileBody, RecallBody, Receipt, RecallResponse, Session, SessionList, SessionExport, MessageList,
    DeadLetter, DeadLetterList, Deleted, RecallEventList, PipelineStatus, Problem,
    SessionSummary, Compacted,
    ContextBody, Context, RestoreBody, Restored, SessionSearchBody, FoundSessions,
    CheckpointBody, Checkpoint, CommitList, Difference, PromotionList,
    MemoryBody, Remembered, Memory, MemoryList, MemoryChanges, MemoryStats, MemorySearchBody, FoundMemories,
    StartBody, ArchiveBody, Channel, ChannelList, ChannelDraft, ChannelDescription, ChannelMove,
    ScratchpadList, ScratchpadItems, ScratchpadEntry, ScratchpadEntries, ScratchpadValue, Cleared,
    CurationEntry, CurationList, UndoBody, Undone,
    Fact, FactDraft, FactList, Note, NoteDraft, NoteChanges, NoteList,
    ScheduleBody, ScheduleChangesBody, Schedule, SchedulePage, ScheduleCount, NextRuns,
    RunRequest, RunReport, ScheduleRun, ScheduleRunList,
    Reminder, ReminderDraft, ReminderPage, ReminderClaim, ClaimedReminders, ReminderDelivered,
    NotificationPage, Acknowledgement, Acknowledged,
)  # fmt: skip
_REFERENCE: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Memory that works while the agent rests. Header values are percent-encoded UTF-8, session ids in paths too."
    " A workspace comes into being with its first message: until then it reads as empty. Errors are problem details"
    " (RFC 9457) with a stable `type`, `urn:reverie:problem:...`."
)


def operation(
    result: type,
    *,
    body: type | None = None,
    query: Mapping[str, str] | None = None,
    statuses: Mapping[str, str] | None = None,
    headers: tuple[str, ...] = (AGENT_HEADER, WORKSPACE_HEADER, TRACE_HEADER),
) -> dict[str, Any]:
    """What to add to a route's description: its body, its answer, its parameters; `query` maps names to types."""
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "header", "required": name == AGENT_HEADER, "schema": {"type": "string"}}
        for name in headers
    ]
    parameters += (
        {"name": name, "in": "query", "required": False, "schema": {"type": kind}}
        for name, kind in (query or {}).items()
    )
    answer = {"application/json": {"schema": _reference(result)}}
    extra: dict[str, Any] = {
        "parameters": parameters,
        "responses": {
            **{
                status: {"description": text, "content": answer}
                for status, text in (statuses or {"200": "Done"}).items()
            },
            "default": {"description": "What went wrong", "content": {CONTENT_TYPE: {"schema": _reference(Problem)}}},
        },
    }
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference(body)}}}
    return extra


def describe(app: FastAPI) -> None:
    """Have the application answer /openapi.json with our own schemas."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
            _, components = msgspec.json.schema_components(_STRUCTS, ref_template=_REFERENCE)
            schema["components"] = {"schemas": components}
            for path in schema["paths"].values():
                for described in path.values():
                    # Written by the framework for bodies that it decodes itself.
                    described["responses"].pop("422", None)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the way FastAPI documents it


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}
