"""Parts of a context made without a store: messages, candidates and selections."""

from __future__ import annotations

from typing import Any

from adapters.language_models import LanguageModel
from adapters.tokens import TokenCounter
from retrieval.context.fit import fit
from retrieval.context.select import Candidate, ContextRequest, Selection
from retrieval.context.turns import Conversation
from retrieval.context.write import BuiltContext, write
from reverie.clock import from_micros
from reverie.memories.types import Tier
from reverie.recall.types import RecallResult
from storage.memories.records import RATES
from storage.pipeline.records import MessageRecord
from storage.sessions.records import SessionRecord

HOUR = 3_600_000_000
# 2026-05-01 09:00 in UTC.
MORNING = 1_777_626_000_000_000


def context_request(query: str | None, *, now: int, **changes: Any) -> ContextRequest:
    """Return a request for the context of session `s` of ana's, with the limits of the settings."""
    fields: dict[str, Any] = {
        "agent": "ana",
        "session": "s",
        "query": query,
        "channel": None,
        "recency_window": 10,
        "max_messages": 20,
        "max_memories": 10,
        "rates": RATES["standard"],
        "now": now,
    }
    return ContextRequest(**{**fields, **changes})


def message(number: int, content: str | None = None, **changes: Any) -> MessageRecord:
    """Return a message of a session, created `number` minutes after MORNING."""
    fields: dict[str, Any] = {
        "row_id": number,
        "id": f"m{number}",
        "agent": "ana",
        "session": "s",
        "sequence": number,
        "role": "user",
        "name": None,
        "content": f"turn {number}" if content is None else content,
        "tool_call_id": None,
        "tool_name": None,
        "tool_calls": [],
        "token_count": None,
        "importance": 0.5,
        "tags": [],
        "metadata": {},
        "trace": "t",
        "created_at": MORNING + number * 60_000_000,
        "stored_at": MORNING,
        "chunked_at": None,
        "consolidated_at": None,
        "embedding_error": None,
    }
    return MessageRecord(**{**fields, **changes})


def candidate(
    number: int,
    text: str | None = None,
    *,
    score: float = 1.0,
    tier: Tier = "workspace",
    importance: float = 0.5,
    access_count: int = 0,
    last_at: int = MORNING,
    **memory: Any,
) -> Candidate:
    """Return a candidate whose chunk has this number, by default a message of another session."""
    shown = text if text is not None else f"memory {number}"
    fields: dict[str, Any] = {"kind": "message", "role": "user", "created_at": from_micros(MORNING), "session": "other"}
    found = RecallResult(id=f"c{number}", text=shown, **{**fields, **memory})
    return Candidate(found, number, score, tier, importance, access_count, last_at)


def selected(
    recent: list[MessageRecord],
    important: list[MessageRecord] | None = None,
    relevant: list[MessageRecord] | None = None,
    memories: list[Candidate] | None = None,
    *,
    summary: str = "",
    **session: Any,
) -> Selection:
    """Return the selection that `select` would return for ana's session `s`."""
    fields: dict[str, Any] = {
        "row_id": 1,
        "id": "s",
        "agent": "ana",
        "ref_code": "r",
        "user": None,
        "provider": None,
        "chat_id": None,
        "channel": None,
        "status": "active",
        "started_at": MORNING,
        "ended_at": None,
        "updated_at": MORNING,
        "last_sequence": 0,
        "messages": len(recent),
    }
    record = SessionRecord(**{**fields, **session})
    talk = Conversation(tuple(recent), tuple(important or ()), tuple(relevant or ()))
    return Selection(record, summary, "what?", talk, tuple(memories or ()))


def written(
    selection: Selection, counter: TokenCounter, *, room: int, refiner: LanguageModel | None = None
) -> BuiltContext:
    """Return the context of a selection, fitted into a room and written."""
    return write(selection, fit(selection, counter, room=room), counter, refiner=refiner)
