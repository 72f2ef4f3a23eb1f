"""The results of recall, context, session search and recall events that calls return."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from reverie.memories.types import LaterChange, Provenance
from reverie.sessions.types import Message
from reverie.types import ListResult


class RetrieverScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score that one retriever gave a result: its rank, from 1, and its raw and normalised score."""

    rank: int
    score: float
    normalised: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a result has its rank. A retriever that did not find it, or does not apply to the query, is absent.

    `reranker` is the score of the reranker, on its own scale, if it ordered this result.
    """

    score: float
    keyword: RetrieverScore | None = None
    vector: RetrieverScore | None = None
    keyword_around: RetrieverScore | None = None
    vector_around: RetrieverScore | None = None
    speaker: RetrieverScore | None = None
    date: RetrieverScore | None = None
    reranker: float | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A neighbour of a recalled message."""

    id: str
    role: str
    text: str
    created_at: datetime
    name: str | None = None


class RecallResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result of a recall.

    `relevance` is the estimated probability that it fits the query: of results with 0.5, about half do. `explanation`
    is present with `explain` only. `duplicates` counts results that say the same, ranked lower and were left out.
    `before` and `after` are its neighbours in the session, oldest first, when `neighbours` were requested. A memory has
    a `tier`, and a `source_message` if it was extracted from one. `ref_code` is the reference code of the session. A
    memory that was replaced held until `valid_to`, and is found with `as_of` only. If a text states a value, such as a
    phone number, and a later text states another one, it is `replaced_by` that later message, file or memory, which was
    said at `replaced_at` and ranks before it. A text has `changed_since` if something that it depends on changed later:
    a user has moved out of the flat whose landlord it names. A memory that `waits` for approval is in no context.
    """

    id: str
    kind: Literal["message", "file", "memory"]
    text: str
    created_at: datetime
    relevance: float = 0.0
    session: str | None = None
    ref_code: str | None = None
    role: str | None = None
    name: str | None = None
    tags: list[str] = []
    tier: Literal["conversation", "channel", "workspace", "account"] | None = None
    source_message: str | None = None
    valid_to: datetime | None = None
    replaced_by: str | None = None
    replaced_at: datetime | None = None
    changed_since: LaterChange | None = None
    waits: bool = False
    excerpt: str | None = None
    duplicates: int = 0
    before: list[Turn] = []
    after: list[Turn] = []
    explanation: Explanation | None = None


class RecallResponse(ListResult[RecallResult], frozen=True, kw_only=True, omit_defaults=True):
    """The results of a recall, best first. `degraded` says why they are fewer or worse than requested."""

    results: list[RecallResult]
    mode: Literal["keyword", "vector", "hybrid"]
    degraded: str = ""


class ContextMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory, message or file in a context. `tier` is the narrowest scope that contains both it and the session.

    Only memories have a `provenance`. `replaced_by`, `replaced_at` and `changed_since` mean the same as in
    `RecallResult`.
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
    provenance: Provenance | None = None
    replaced_by: str | None = None
    replaced_at: datetime | None = None
    changed_since: LaterChange | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many selected items are missing from a context, by the reason why they were selected.

    `instructions` counts standing instructions in force. `shortened` counts messages that were cut to fit, `refined`
    items that a language model dropped; both are counted by their reason as well. `duplicates` counts items that say
    the same, in the same words, as another selected one: the newer of the two is included.
    """

    memories: int = 0
    relevant: int = 0
    important: int = 0
    recent: int = 0
    shortened: int = 0
    refined: int = 0
    instructions: int = 0
    duplicates: int = 0


ItemKind = Literal["message", "file", "memory"]
ServedSection = Literal["instruction", "important", "relevant", "recent", "memory"]
LeftOutBecause = Literal[
    "", "no room", "says the same", "not relevant enough", "dropped by the language model", "held back"
]


class ServedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message, file or memory that a context included, or `left_out` with the reason.

    `section` is the part of the document; `relevance` is None unless the item was recalled. `text` is the current
    text, for a file its source. The item is `forgotten` if it is gone or the caller may not see it, and `changed` if
    it is a memory that was changed since.
    """

    section: ServedSection
    kind: ItemKind
    id: str
    session: str | None = None
    relevance: float | None = None
    left_out: LeftOutBecause = ""
    text: str | None = None
    forgotten: bool = False
    changed: bool = False


class ServedContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A context that was served, with the numbers of items `included` and `left_out`.

    `items` are those included, in their order, and then those left out; lists of contexts do not have them.

    If the caller gave no `query`, it is the newest message of the user.
    """

    id: str
    at: datetime
    token_budget: int
    tokens: int
    session: str | None = None
    included: int = 0
    left_out: int = 0
    query: str = ""
    user: str | None = None
    degraded: str = ""
    items: list[ServedItem] = []


class ServedContextList(ListResult[ServedContext], frozen=True, kw_only=True):
    """A page of contexts, newest first, without their items."""

    contexts: list[ServedContext]


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to `context`: `text` is Markdown for a system prompt and has `tokens` tokens.

    `instructions` are the standing instructions in it, newest first. `messages` are the turns of the session in it,
    oldest first; `memories` come from elsewhere, the narrowest scope first and the best first in each. `degraded` says
    why it contains less than requested. For some days, `contexts.show` explains by its `id` what it contains and why.
    """

    text: str
    tokens: int
    messages: list[Message]
    memories: list[ContextMemory]
    left_out: LeftOut
    instructions: list[ContextMemory] = []
    degraded: str = ""
    id: str = ""

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class Restored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to `restore`: the newest messages that fit, oldest first, and the summary of older ones.

    `tokens` counts both. `left_out` older messages did not fit; the summary does not cover `uncovered` of them until
    `sessions.compact` is called. `shortened` messages were cut to fit.
    """

    session: str
    messages: list[Message]
    tokens: int
    left_out: int
    summary: str | None = None
    shortened: int = 0
    uncovered: int = 0


class FoundSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that matches a query, with an excerpt of its best match, and the relevance of that match.

    Its last message was said at `last_said_at`, and stored at `updated_at`.
    """

    session: str
    ref_code: str
    updated_at: datetime
    messages: int
    excerpt: str
    relevance: float = 0.0
    title: str | None = None
    last_said_at: datetime | None = None


class FoundSessions(ListResult[FoundSession], frozen=True, kw_only=True, omit_defaults=True):
    """The response to `sessions.search`, best first."""

    results: list[FoundSession]
    degraded: str = ""


class RecallEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result of an earlier recall; `access_count` is how often this item has been found so far.

    All results of one recall have the same `recall` id. `score` is present with `explain` only. `account` marks a
    memory of the account, which recalls in any workspace find.
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


class RecallEventList(ListResult[RecallEvent], frozen=True, kw_only=True):
    """A page of recall events: newest recall first, the best result of each first."""

    recall_events: list[RecallEvent]
