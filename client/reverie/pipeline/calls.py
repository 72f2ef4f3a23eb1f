"""The calls for messages, files, the status of the pipeline and dead letters, and the types that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, field

from reverie import contract
from reverie.calls import Call, OfUser, Paged, Resource
from reverie.contract import MAX_FILE_BYTES, WaitFor
from reverie.errors import Rejection
from reverie.fields import MAX_COUNT, SessionId, UserId, label
from reverie.pipeline.status import PipelineStatus
from reverie.types import Deleted, ListResult


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

    `replay` is present only in the result of a replay: "succeeded" if the work is done, "failed" if it failed again,
    and "queued" if it was not known in time. `attempts` counts those of all replays.
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


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait in the inbox of each workspace, and in all of them: items, and bytes of their payloads.

    The defaults apply until a worker has written the settings to the broker, for example after it lost its content.
    """

    workspace_items: int = 200_000
    workspace_bytes: int = 256_000_000
    items: int = 400_000
    bytes: int = 512_000_000


Wait = Annotated[WaitFor, Meta(description="Return once the messages are queued, stored or searchable.")]
WaitSeconds = Annotated[
    float, Meta(gt=0, le=contract.MAX_WAIT_SECONDS, description="The maximum number of seconds to wait.")
]
# For calls that wait for workers, the client's timeout is this much longer than the server's.
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
    """Ingest the text of a document. Unchanged parts of it are not indexed again.

    Without an `id`, its id is derived from its address, session and user.
    """

    route: ClassVar = "POST /v1/files"
    adds: ClassVar = {"messages": 1}
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


class ListFiles(Paged[FileList], kw_only=True, frozen=True):
    """List the documents that were ingested, newest first, without their text."""

    route: ClassVar = "GET /v1/files"
    user: UserId | None = None
    session: Annotated[SessionId | None, Meta(description="Only of this session.")] = None


class DeleteFile(OfUser[Deleted], frozen=True):
    """Delete a document permanently with its chunks, vectors and index entries; return False if there was none.

    A delivery of it that is accepted but not stored yet is dropped. By its address it is deleted in every session.
    """

    route: ClassVar = "DELETE /v1/files/{id}"
    id: Annotated[str, label("The id of a file, or its address.", limit=2_048)]


class GetStatus(Call[PipelineStatus], frozen=True):
    """Return the status of the pipeline."""

    route: ClassVar = "GET /v1/status"
    # Reading it takes 2 s, some more without a broker. The caller wants to know soon if the server has stopped.
    response_timeout_seconds: ClassVar = 15.0
    required_scope: ClassVar = "operate"


class ListDeadLetters(Paged[DeadLetterList], kw_only=True, frozen=True):
    """List this agent's dead letters, which are work that failed for good, newest first and without payloads."""

    route: ClassVar = "GET /v1/dead-letters"
    required_scope: ClassVar = "operate"
    all_agents: Annotated[bool, Meta(description="List dead letters of all agents of the workspace.")] = False


class GetDeadLetter(Call[DeadLetter], frozen=True):
    """Return a dead letter with its payload. Raises `NotFound`."""

    route: ClassVar = "GET /v1/dead-letters/{id}"
    required_scope: ClassVar = "operate"
    letter_id: LetterId = field(name="id")


class ReplayDeadLetter(Call[DeadLetter], frozen=True):
    """Queue a dead letter again, and wait a moment for the outcome: see `replay` in the result.

    It stays until the work is done. If it fails again, it has its new error, and its attempts are added up. Raises
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
