"""What the calls of Reverie return: typed, immutable, the same over the broker and over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from reverie.errors import Rejection


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ingest`: what was accepted, what was not and why, and how far the accepted has come.

    `state` holds for every accepted message. `degraded` says why something is searchable by words only.
    """

    state: Literal["queued", "stored", "searchable"]
    accepted: list[str]
    rejected: list[Rejection] = []
    trace: str = ""
    degraded: str = ""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of a session."""

    id: str
    session: str
    sequence: int
    role: Literal["user", "assistant", "system", "tool"]
    content: str
    created_at: datetime
    name: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[dict[str, Any]] = []
    token_count: int | None = None
    importance: float = 0.5
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    embedding_error: str | None = None
    consolidated_at: datetime | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation of an agent."""

    id: str
    ref_code: str
    status: Literal["active", "idle", "archived"]
    started_at: datetime
    updated_at: datetime
    messages: int
    last_sequence: int
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    ended_at: datetime | None = None
    metadata: dict[str, Any] = {}


class RetrieverScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score that one retriever gave a result: its rank, from 1, and its raw and normalised score."""

    rank: int
    score: float
    normalised: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a result has its rank. A retriever that did not find it, or does not apply to the query, is absent."""

    score: float
    keyword: RetrieverScore | None = None
    vector: RetrieverScore | None = None
    keyword_around: RetrieverScore | None = None
    vector_around: RetrieverScore | None = None
    speaker: RetrieverScore | None = None
    date: RetrieverScore | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message beside one that was recalled."""

    id: str
    role: str
    text: str
    created_at: datetime
    name: str | None = None


class RecallResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing recalled. There are no scores unless `explain` was asked for.

    `before` and `after` are its neighbours in the session, oldest first, where `neighbours` asked for them. A memory
    has a `tier`, and a `source_message` where it came from one.
    """

    id: str
    kind: Literal["message", "file", "memory"]
    text: str
    created_at: datetime
    session: str | None = None
    role: str | None = None
    name: str | None = None
    tags: list[str] = []
    tier: Literal["conversation", "channel", "workspace", "account"] | None = None
    source_message: str | None = None
    excerpt: str | None = None
    before: list[Turn] = []
    after: list[Turn] = []
    explanation: Explanation | None = None


class RecallResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `recall`, best first. `degraded` says why it is less than what was asked for."""

    results: list[RecallResult]
    mode: Literal["keyword", "vector", "hybrid"]
    degraded: str = ""

    def __iter__(self) -> Any:
        """Iterate over the results."""
        return iter(self.results)

    def __len__(self) -> int:
        """How many results there are."""
        return len(self.results)


class ContextMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something remembered that a context tells, with its tier: the narrowest scope that holds it.

    A message or a file holds in the narrowest scope that holds the session at hand, too.
    """

    id: str
    kind: Literal["message", "file", "memory"]
    tier: Literal["conversation", "channel", "workspace", "account"]
    text: str
    created_at: datetime
    session: str | None = None
    role: str | None = None
    name: str | None = None
    tags: list[str] = []
    source_message: str | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was selected is not in a context, by why it was selected.

    `shortened` counts messages that were cut to fit, `refined` those that a language model left out; these are
    counted by their kind too.
    """

    memories: int = 0
    relevant: int = 0
    important: int = 0
    recent: int = 0
    shortened: int = 0
    refined: int = 0


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `context`: `text` is Markdown for a system prompt and has `tokens` tokens.

    `messages` are the turns of the session in it, in the order in which they were said; `memories` what is remembered
    beside them, the narrowest scope first and the best first in each. `degraded` says why it is less than asked for.
    """

    text: str
    tokens: int
    messages: list[Message]
    memories: list[ContextMemory]
    left_out: LeftOut
    degraded: str = ""

    def __str__(self) -> str:
        """The document itself."""
        return self.text


class Restored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `restore`: the newest messages that fit, oldest first, and the summary of what was before.

    `tokens` counts both. `left_out` are older messages that did not fit, of which the summary does not cover
    `uncovered`: `compact` makes that none. `shortened` are messages cut to fit.
    """

    session: str
    messages: list[Message]
    tokens: int
    left_out: int
    summary: str | None = None
    shortened: int = 0
    uncovered: int = 0


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The rolling summary of a session: a line for each thing, with its date and speaker; empty before the first one.

    It covers `covers` of the session's messages, all up to `upper_sequence` among them, and not the `uncovered` others.
    `epoch` counts how often it was written.
    """

    session: str
    text: str
    tokens: int
    epoch: int
    upper_sequence: int
    covers: int
    uncovered: int


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `compact`: how many messages went into the summary, and the summary."""

    condensed: int
    summary: SessionSummary


class FoundSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session that fits a query, with the text that fits best."""

    session: str
    ref_code: str
    updated_at: datetime
    messages: int
    excerpt: str


class FoundSessions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a search for sessions, best first."""

    results: list[FoundSession]
    degraded: str = ""


class RecallEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result of a recall of the past: `access_count` is how often this text has been found by now.

    All results of one recall carry the same `recall`. There is no score unless `explain` was asked for. `account` marks
    a memory that holds across workspaces, of a recall in any of them.
    """

    recall: str
    query: str
    at: datetime
    kind: Literal["message", "file", "memory"]
    id: str
    access_count: int
    session: str | None = None
    score: float | None = None
    account: bool = False


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work that cannot succeed by itself. `payload` is shown only when one is asked for."""

    id: int
    agent: str
    stage: str
    item_id: str
    error_type: str
    error: str
    attempts: int
    created_at: datetime
    session: str | None = None
    trace: str = ""
    payload: str | None = None


class SessionExport(msgspec.Struct, frozen=True, kw_only=True):
    """A session with all its messages, in the order in which they were said."""

    session: Session
    messages: list[Message]
    schema_version: int = 1


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions, the most recently active first."""

    sessions: list[Session]


class MessageList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of messages, oldest first."""

    messages: list[Message]


class RecallEventList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of recall events, the newest recall first, the best result of each first."""

    recall_events: list[RecallEvent]


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, the newest first."""

    dead_letters: list[DeadLetter]


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a deletion: whether there was something to delete."""

    deleted: bool
