"""What the calls of the pipeline return."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from reverie.errors import Rejection


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ingest`: the accepted messages, the rejected ones with their errors, and how far they have come.

    `state` holds for every accepted message. `degraded` says why something is searchable by words only.
    """

    state: Literal["queued", "stored", "searchable"]
    accepted: list[str]
    rejected: list[Rejection] = []
    trace: str = ""
    degraded: str = ""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work that cannot succeed by itself. `payload` is present only when a single dead letter is read."""

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


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, newest first."""

    dead_letters: list[DeadLetter]
