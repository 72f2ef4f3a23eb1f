"""Rows as they leave the store: frozen, typed, times as integer microseconds in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from storage.memories.records import Tier


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One conversation of an agent. `messages` is their count, where it was asked for."""

    row_id: int
    id: str
    agent: str
    ref_code: str
    user: str | None
    provider: str | None
    chat_id: str | None
    channel: str | None
    status: str
    started_at: int
    ended_at: int | None
    updated_at: int
    last_sequence: int
    metadata: dict[str, Any] = field(default_factory=dict)
    messages: int = 0


class SessionName(NamedTuple):
    """A session by its agent and id."""

    agent: str
    session: str


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


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found by one retriever of a recall. A higher score is a better match.

    Of a whole recall, which may reach over two stores, `store` says which one the chunk is of.
    """

    chunk_id: int
    score: float
    store: str = ""


@dataclass(frozen=True, slots=True)
class FoundText:
    """What a chunk stands for: the message, file or memory it came from, as a recall shows it.

    Of a memory `tier` is where it lives, and `source_message` the id of the message that it was made from, if any.
    One with `expires_at` (microseconds) is not to be shown from then on.
    """

    chunk_id: int
    kind: str
    id: str
    session: str | None
    role: str | None
    name: str | None
    text: str
    chunk_text: str
    tags: tuple[str, ...]
    sequence: int
    created_at: int
    tier: Tier | None = None
    source_message: str | None = None
    expires_at: int | None = None


class FoundTurn(NamedTuple):
    """A message that stands beside one that was found."""

    id: str
    role: str
    name: str | None
    text: str
    created_at: int


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a periodic job."""

    job: str
    period: int
    started_at: int
    finished_at: int | None
    counts: dict[str, Any]
    error: str | None
