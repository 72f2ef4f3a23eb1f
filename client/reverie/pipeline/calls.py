"""The calls that ingest messages and files, and those about the status of the pipeline and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from reverie import contract
from reverie.calls import Call, OfUser, Paged, Resource
from reverie.contract import MAX_FILE_BYTES, WaitFor
from reverie.fields import MAX_COUNT, SessionId, UserId, label
from reverie.pipeline.status import PipelineStatus
from reverie.pipeline.types import DeadLetter, DeadLetterList, FileList, Receipt
from reverie.types import Deleted

Wait = Annotated[WaitFor, Meta(description="Return once the messages are queued, stored or searchable.")]
WaitSeconds = Annotated[
    float, Meta(gt=0, le=contract.MAX_WAIT_SECONDS, description="The maximum number of seconds to wait.")
]
# The client waits this much longer than the server for the response to a call that waits for workers.
_MARGIN_SECONDS = 30.0

LetterId = Annotated[int, Meta(ge=1, le=MAX_COUNT, description="The number of a dead letter.")]


class IngestMessages(Call[Receipt], kw_only=True, frozen=True):
    """Ingest messages into a session, named by its id or by `provider` and `chat_id`.

    Invalid messages are listed in `rejected`, the others are accepted.
    """

    route: ClassVar = "POST /v1/messages"
    is_idempotent: ClassVar = True  # by the ids of its items
    messages: list[Any]
    session: str | None = None
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    visibility: contract.Visibility | None = None
    strict: bool = False
    wait: Wait = "queued"
    timeout_seconds: float = 30.0

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"messages": len(self.messages)}


class IngestFile(Call[Receipt], kw_only=True, frozen=True):
    """Ingest the text of a document. An unchanged document is not indexed again."""

    route: ClassVar = "POST /v1/files"
    is_idempotent: ClassVar = True  # by the ids of its items
    # JSON writes line ends, quotes and backslashes as two bytes; the rest is for metadata and tags.
    body_bytes: ClassVar = 2 * MAX_FILE_BYTES + 1024 * 1024
    source_uri: str
    content: str
    id: str | None = None
    session: str | None = None
    user: str | None = None
    visibility: contract.Visibility | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = {}
    wait: Wait = "queued"
    timeout_seconds: float = 30.0

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"messages": 1}


class ListFiles(Paged[FileList], kw_only=True, frozen=True):
    """List the documents that were ingested, newest first, without their text."""

    route: ClassVar = "GET /v1/files"
    user: UserId | None = None
    session: Annotated[SessionId | None, Meta(description="Only of this session.")] = None


class DeleteFile(OfUser[Deleted], frozen=True):
    """Delete a document permanently with its chunks, vectors and index entries; return False if there was none.

    A delivery of it that is accepted but not stored yet is dropped.
    """

    route: ClassVar = "DELETE /v1/files/{id}"
    id: Annotated[str, label("The id of a file.")]


class GetStatus(Call[PipelineStatus], frozen=True):
    """Return the status of the pipeline."""

    route: ClassVar = "GET /v1/status"
    required_scope: ClassVar = "operate"


class ListDeadLetters(Paged[DeadLetterList], kw_only=True, frozen=True):
    """List this agent's dead letters, which are work that failed for good, newest first and without payloads."""

    route: ClassVar = "GET /v1/dead-letters"
    required_scope: ClassVar = "operate"
    all_agents: Annotated[bool, Meta(description="List those of all agents of the workspace.")] = False


class GetDeadLetter(Call[DeadLetter], frozen=True):
    """Return a dead letter with its payload. Raises `NotFound`."""

    route: ClassVar = "GET /v1/dead-letters/{id}"
    required_scope: ClassVar = "operate"
    letter_id: LetterId = field(name="id")


class ReplayDeadLetter(Call[DeadLetter], frozen=True):
    """Queue a dead letter again, and wait for a moment for what becomes of it: see `replay` in the result.

    If it fails again, it becomes a dead letter with a new number and its new error, which is returned. Raises
    `NotFound`, and `Conflict` for a letter that cannot be replayed.
    """

    route: ClassVar = "POST /v1/dead-letters/{id}/replay"
    required_scope: ClassVar = "operate"
    letter_id: LetterId = field(name="id")
    timeout_seconds: Annotated[
        float, Meta(ge=0, le=contract.MAX_WAIT_SECONDS, description="The maximum number of seconds to wait for it.")
    ] = 5.0

    def http_timeout_seconds(self) -> float | None:
        """Return the time that the server may wait for the workers, plus a margin."""
        return self.timeout_seconds + _MARGIN_SECONDS


class DropDeadLetter(Call[Deleted], frozen=True):
    """Delete a dead letter; return False if there was none."""

    route: ClassVar = "DELETE /v1/dead-letters/{id}"
    required_scope: ClassVar = "operate"
    letter_id: LetterId = field(name="id")
