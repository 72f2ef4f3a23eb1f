"""The receipts and dead letters that calls return."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from reverie.errors import Rejection
from reverie.types import ListResult


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `ingest`: the ids of accepted messages, and the rejected messages with their errors.

    Every accepted message has reached `state`. `degraded` is why some are searchable by words only.
    """

    state: Literal["queued", "stored", "searchable"]
    accepted: list[str]
    rejected: list[Rejection] = []
    trace: str = ""
    degraded: str = ""


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document that was ingested; its text is found by `recall`."""

    id: str
    source_uri: str
    created_at: datetime
    bytes: int
    session: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    user: str | None = None
    visibility: str | None = None


class FileList(ListResult[File], frozen=True, kw_only=True):
    """A page of files, newest first."""

    files: list[File]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work that cannot succeed by itself. `payload` is present only when a single dead letter is read.

    `replay` is present only in the result of a replay: "succeeded" if the work is done, "failed" if it failed again
    (this is then the new dead letter), and "queued" if it was not known in time.
    """

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
    replay: Literal["queued", "succeeded", "failed"] | None = None


class DeadLetterList(ListResult[DeadLetter], frozen=True, kw_only=True):
    """A page of dead letters, newest first."""

    dead_letters: list[DeadLetter]
