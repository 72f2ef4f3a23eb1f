"""Sessions as records: frozen and typed, times as integer microseconds in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One conversation of an agent. `messages` is how many it has; a group has several users, each of whom sees it."""

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
    is_group: bool = False


class SessionName(NamedTuple):
    """A session by its agent and id."""

    agent: str
    session: str
