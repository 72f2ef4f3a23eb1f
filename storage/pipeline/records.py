"""Messages, chunks and dead letters as records: frozen and typed, times as integer microseconds in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be stored; `row_id` and, where the caller gave none, the sequence are the store's to assign."""

    id: str
    agent: str
    role: str
    name: str | None
    content: str
    tool_call_id: str | None
    tool_name: str | None
    tool_calls: str | None
    token_count: int | None
    importance: float
    tags: str
    metadata: str
    trace: str
    created_at: int
    accepted_at: int


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One stored turn of a session."""

    row_id: int
    id: str
    agent: str
    session: str
    sequence: int
    role: str
    name: str | None
    content: str
    tool_call_id: str | None
    tool_name: str | None
    tool_calls: list[dict[str, Any]]
    token_count: int | None
    importance: float
    tags: list[str]
    metadata: dict[str, Any]
    trace: str
    created_at: int
    stored_at: int
    chunked_at: int | None
    consolidated_at: int | None
    embedding_error: str | None


@dataclass(frozen=True, slots=True)
class SourceText:
    """A message or file that waits for chunking. `before` is the end of what was said just before it."""

    row_id: int
    id: str
    agent: str
    session_row: int | None
    sequence: int
    role: str
    name: str | None
    content: str
    tool_calls: str | None
    tags: tuple[str, ...]
    created_at: int
    accepted_at: int
    trace: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A stretch of text cut from a source. `content_hash` decides what is a repeat within its session or file.

    `lead` is the question that was asked just before: the text is found by its words too. `speaker` is who says it.
    """

    text: str
    content_hash: bytes
    lead: str = ""
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk that waits for its vector, with the question that it answers."""

    id: int
    agent: str
    lead: str
    text: str
    speaker: str | None


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """A message all of whose chunks are searchable, with the time at which it was accepted."""

    id: str
    agent: str
    accepted_at: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Work that cannot succeed by itself, kept until a person replays or drops it."""

    id: int
    agent: str
    session: str | None
    stage: str
    item_id: str
    payload: bytes | None
    error_type: str
    error: str
    attempts: int
    trace: str
    created_at: int


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """A dead letter to be kept; the time is the store's."""

    agent: str
    session: str | None
    stage: str
    item_id: str
    payload: bytes | None
    error_type: str
    error: str
    attempts: int
    trace: str = ""
