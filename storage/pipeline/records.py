"""Messages, chunks and dead letters as records: frozen and typed, times as integer microseconds in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from storage.rows import if_damaged


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store; the store assigns its row and, where the caller gave none, its sequence.

    `tool_calls`, `tags` and `metadata` are JSON.
    """

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
    user: str | None = None
    visibility: str | None = None
    original: str | None = None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One stored message of a session; `user` is the end user that it was stored for, if it named one."""

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
    user: str | None = None
    visibility: str | None = None


@dataclass(frozen=True, slots=True)
class SpokenMessage:
    """A message, read to find what it is about; `speaker` is its user, else its session's user, else its name."""

    session_row: int
    sequence: int
    id: str
    session: str
    role: str
    speaker: str
    content: str
    created_at: int


@dataclass(frozen=True, slots=True)
class WholeMessage(MessageRecord):
    """A stored message with its original, the caller's own form of it, which may be large."""

    original: str | None = None


@dataclass(frozen=True, slots=True)
class SourceText:
    """A message, file or memory that waits to be chunked. `before` is the end of the message just before it."""

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
    before: str = field(default="", metadata=if_damaged(""))


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A piece of text cut from a source. Chunks with the same `content_hash` in a session or file are stored once.

    `lead` is the question asked just before: recall finds the chunk by its words, too. `words` are the hashes of both.
    """

    text: str
    content_hash: bytes
    words: bytes
    lead: str = ""
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk that waits for its vector; `lead` is the question that it answers."""

    id: int
    agent: str
    lead: str
    text: str
    speaker: str | None


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """A "message" or "file" that recall can find, and when it was said and accepted."""

    kind: str
    row_id: int
    id: str
    created_at: int
    accepted_at: int


@dataclass(frozen=True, slots=True)
class Origin:
    """A message or file that a chunk was cut from: its id, its trace id, and when it was said and accepted."""

    id: str
    trace: str
    created_at: int
    accepted_at: int


# The stages of the dead letters of recalls, which cannot be replayed, and of goals that kill their worker.
RECALLS_STAGE: Final = "recalls"
GOALS_STAGE: Final = "goals"


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """A dead letter to store; the store sets its time. `variant` distinguishes deliveries with the same item id."""

    agent: str
    session: str | None
    stage: str
    item_id: str
    payload: bytes | None
    error_type: str
    error: str
    attempts: int
    trace: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(NewDeadLetter):
    """Work that failed for good, kept until a person replays or deletes it."""

    id: int
    created_at: int
