"""Exports: the records of a file, the calls that make and take it with their reports, and the check of each record.

An export file is JSON Lines: a header, one record on each line, and an end with the checksums of every part and of all
lines before it. docs/portability.md describes it; the structs below are its fields. A field that has its default is
left out. Records are checked before anything is stored: in the client, and again in the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from reverie import contract
from reverie.calls import Call, Resource
from reverie.checks import (
    MAX_INTEGER,
    check_agent,
    check_json,
    check_label,
    check_payload,
    check_text,
    check_time,
    check_workspace,
)
from reverie.clock import to_micros
from reverie.contract import MAX_FILE_BYTES, FilePayload, MessagePayload
from reverie.decoding import check_keys, convert
from reverie.errors import Rejected
from reverie.fields import check_fields, label
from reverie.items import PutItem
from reverie.memories.calls import SetFact, check_memory
from reverie.memories.types import Lifetime, MemoryDraft, MemoryKind, Tier
from reverie.parts import in_parts
from reverie.recall.types import ServedContext
from reverie.scheduling import types as scheduling
from reverie.scheduling.calls import Remind
from reverie.scheduling.types import check_executor
from reverie.sessions.calls import CreateChannel, StartSession, WriteScratchpad, WriteScratchpadKey
from reverie.types import ListResult

_S = TypeVar("_S", bound=msgspec.Struct)

# The version of the format. Documents of `memories.export` and `sessions.export` are version 1.
FORMAT = "reverie-export"
FORMAT_VERSION = 3


class ExportedRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="part"
):
    """One line of an export: a row of an agent in a workspace. Its `part` is the kind of the row."""

    workspace: str
    agent: str

    # The fields that name the end user whom a record belongs to.
    user_fields: ClassVar[tuple[str, ...]] = ()


class ExportedChannel(ExportedRecord, frozen=True, kw_only=True, tag="channels"):
    """A channel of an agent."""

    id: str
    created_at: datetime
    description: str = ""
    is_default: bool = False


class ExportedSession(ExportedRecord, frozen=True, kw_only=True, tag="sessions"):
    """A session with its summary; a group has `users`. Messages up to `extracted_up_to` were read for memories."""

    user_fields: ClassVar = ("user",)
    id: str
    ref_code: str
    started_at: datetime
    updated_at: datetime
    status: Literal["active", "idle", "archived"] = "active"
    user: str | None = None
    users: list[str] = []
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    ended_at: datetime | None = None
    metadata: dict[str, Any] = {}
    last_sequence: int = 0
    summary_text: str | None = None
    summary_epoch: int = 0
    summary_upper_sequence: int = 0
    extracted_up_to: int = 0


class ExportedMessage(ExportedRecord, frozen=True, kw_only=True, tag="messages"):
    """A message of a session; with `consolidated_at` the summary covers it."""

    user_fields: ClassVar = ("user",)
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
    trace: str = ""
    consolidated_at: datetime | None = None
    user: str | None = None
    visibility: Literal["private", "shared"] | None = None
    original: str | None = None


class ExportedFile(ExportedRecord, frozen=True, kw_only=True, tag="files"):
    """A document that was ingested, with its text."""

    user_fields: ClassVar = ("user",)
    id: str
    source_uri: str
    content: str
    created_at: datetime
    session: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    trace: str = ""
    user: str | None = None
    visibility: Literal["private", "shared"] | None = None


class ExportedMemory(ExportedRecord, frozen=True, kw_only=True, tag="memories"):
    """A memory, fact or note, also one that another has replaced.

    `superseded_by` is the id of the memory that replaced it, its own id if that one is not in the export.
    """

    user_fields: ClassVar = ("owner_user_id",)
    id: str
    content: str
    tier: Tier
    lifetime: Lifetime
    kind: MemoryKind
    source: str
    importance: float
    created_at: datetime
    updated_at: datetime
    accessed_at: datetime
    access_count: int = 0
    expires_at: datetime | None = None
    owner_user_id: str | None = None
    tags: list[str] = []
    concept_tags: list[str] = []
    metadata: dict[str, Any] = {}
    session: str | None = None
    source_message: str | None = None
    channel: str | None = None
    note_id: str | None = None
    category: str | None = None
    key: str | None = None
    value: str | None = None
    subject: str | None = None
    confidence: float | None = None
    pinned: bool = False
    visibility: Literal["private", "requested", "shared"] = "private"
    superseded_by: str | None = None
    superseded_at: datetime | None = None
    trace: str = ""
    made_by: str | None = None
    confirmed_at: datetime | None = None
    promoted_at: datetime | None = None
    promotion_score: float | None = None
    promotion_phase: str | None = None


class ExportedScratchpadList(ExportedRecord, frozen=True, kw_only=True, tag="scratchpad_lists"):
    """The list of a session's scratchpad."""

    session: str
    items: list[Any]
    updated_at: datetime


class ExportedScratchpadKey(ExportedRecord, frozen=True, kw_only=True, tag="scratchpads"):
    """One key of a session's scratchpad."""

    session: str
    key: str
    value: str
    created_at: datetime
    updated_at: datetime


class ExportedItem(ExportedRecord, frozen=True, kw_only=True, tag="items"):
    """An item without vectors: the server computes its own again, and a caller puts those of another embedder again."""

    user_fields: ClassVar = ("user",)
    namespace: list[str]
    key: str
    value: dict[str, Any]
    user: str | None = None
    ttl_seconds: float | None = None
    expires_at: datetime | None = None
    index_fields: list[str] | None = None
    created_at: datetime
    updated_at: datetime


class ExportedSchedule(ExportedRecord, frozen=True, kw_only=True, tag="schedules"):
    """A schedule; `cadence` and `executor` as in the call that adds one."""

    user_fields: ClassVar = ("user",)
    id: str
    goal: str
    cadence: dict[str, Any]
    executor: dict[str, Any]
    policy: scheduling.NotificationPolicy
    status: scheduling.ScheduleStatus
    timeout_seconds: int
    recall_limit: int
    created_at: datetime
    updated_at: datetime
    user: str | None = None
    name: str | None = None
    channel: str | None = None
    session: str | None = None
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_run_status: scheduling.RunStatus | None = None
    consecutive_failures: int = 0
    retries: int = 0


class ExportedRun(ExportedRecord, frozen=True, kw_only=True, tag="runs"):
    """A run of a schedule that has ended."""

    id: str
    schedule: str
    due_at: datetime
    first_due_at: datetime
    trigger: scheduling.RunTrigger
    status: scheduling.RunStatus
    created_at: datetime
    coalesced: int = 0
    attempt: int = 1
    started_at: datetime | None = None
    finished_at: datetime | None = None
    summary: str = ""
    output: str = ""
    error: str = ""
    turn_count: int = 0
    cost: float = 0.0
    notified: bool = False
    trace: str = ""


class ExportedReminder(ExportedRecord, frozen=True, kw_only=True, tag="reminders"):
    """A reminder, delivered or not."""

    user_fields: ClassVar = ("user", "recipient")
    id: str
    session: str
    recipient: str
    message: str
    delivery: scheduling.Delivery
    due_at: datetime
    created_at: datetime
    user: str | None = None
    channel: str | None = None
    attempts: int = 0
    error: str = ""
    delivered_at: datetime | None = None


class ExportedNotification(ExportedRecord, frozen=True, kw_only=True, tag="notifications"):
    """A notification about a schedule or one of its runs."""

    user_fields: ClassVar = ("user",)
    id: str
    kind: scheduling.NotificationKind
    schedule: str
    title: str
    body: str
    created_at: datetime
    user: str | None = None
    schedule_name: str | None = None
    run: str | None = None
    run_status: scheduling.RunStatus | None = None
    channel: str | None = None
    session: str | None = None
    attempts: int = 0
    error: str = ""
    delivered_at: datetime | None = None
    acknowledged_at: datetime | None = None


class ExportedDeadLetter(ExportedRecord, frozen=True, kw_only=True, tag="dead_letters"):
    """Work that failed for good; its payload, if it has one, is in base64."""

    stage: str
    item_id: str
    error_type: str
    error: str
    attempts: int
    created_at: datetime
    session: str | None = None
    payload: bytes | None = None
    trace: str = ""
    # Distinguishes several deliveries with the same id.
    variant: str = ""


class ExportedRecallEvent(ExportedRecord, frozen=True, kw_only=True, tag="recall_events"):
    """One result of a recall: the query, and the part of a message, file or memory that it found."""

    user_fields: ClassVar = ("user",)
    recall: str
    query: str
    score: float
    at: datetime
    found_kind: Literal["message", "file", "memory"]
    found: str
    # The BLAKE3 hash of the chunk, in hexadecimal: which part of the text it was.
    chunk: str
    in_account: bool = False
    user: str | None = None
    # The session of a message that was found, because ids of messages are unique only within their session.
    found_session: str | None = None


class ExportedContext(ExportedRecord, frozen=True, kw_only=True, tag="contexts"):
    """A context that was served: the query, and the ids of what it told or left out, as in `ServedContext`."""

    user_fields: ClassVar = ("user",)
    id: str
    at: datetime
    token_budget: int
    tokens: int
    session: str | None = None
    query: str = ""
    user: str | None = None
    degraded: str = ""
    items: list[dict[str, Any]] = []


AnyRecord: TypeAlias = (
    ExportedChannel
    | ExportedSession
    | ExportedMessage
    | ExportedFile
    | ExportedMemory
    | ExportedScratchpadList
    | ExportedScratchpadKey
    | ExportedItem
    | ExportedSchedule
    | ExportedRun
    | ExportedReminder
    | ExportedNotification
    | ExportedDeadLetter
    | ExportedRecallEvent
    | ExportedContext
)

# The parts in their order in a file: a record comes after the records that it refers to.
RECORD_TYPES: tuple[type[ExportedRecord], ...] = AnyRecord.__args__


def tag_of(kind: type[ExportedRecord]) -> str:
    """Return the part that records of a type belong to."""
    return str(kind.__struct_config__.tag)


def part_of(record: ExportedRecord) -> str:
    """Return the part that a record belongs to."""
    return tag_of(type(record))


PARTS: tuple[str, ...] = tuple(map(tag_of, RECORD_TYPES))


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an export contains: only content that matches every field that is not None."""

    user: str | None = None
    agent: str | None = None
    workspace: str | None = None
    session: str | None = None


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="part", tag="header"):
    """The first line of an export file: when it was made, and what it contains.

    `tenants` are the workspaces in it, by tenant; those of one tenant share an account tier.
    """

    exported_at: datetime
    selection: Selection
    tenants: dict[str, list[str]]
    reverie: str = ""
    format: str = ""
    schema_version: int = 0


class PartSum(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of a part, and the SHA-256 of their lines in hexadecimal."""

    records: int
    sha256: str


class ExportEnd(msgspec.Struct, frozen=True, kw_only=True, tag_field="part", tag="end"):
    """The last line of an export file: the sums of its parts, and the SHA-256 of all lines before this one."""

    parts: dict[str, PartSum]
    records: int
    sha256: str


class ExportPage(ListResult[AnyRecord], frozen=True, kw_only=True, omit_defaults=True):
    """A page of an export. The first one has the `header` and `counts`, the number of records by part.

    `cursor` goes on where the page ends; None after the last one.
    """

    records: list[AnyRecord]
    cursor: str | None = None
    header: ExportHeader | None = None
    counts: dict[str, int] = {}  # noqa: RUF012 - msgspec copies it


class ImportReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of an import, or of its dry run, in numbers of records by part.

    `added` records are new and `present` ones were stored already. `left_out` counts records that the caller may not
    import, or that refer to missing rows. `erased` counts the added records that had been erased here after the export
    was made, and `shared` those that now wait for an operator's approval. `waiting` records could not be stored yet:
    send them again.
    """

    added: dict[str, int] = {}
    present: dict[str, int] = {}
    left_out: dict[str, int] = {}
    erased: dict[str, int] = {}
    shared: int = 0
    waiting: int = 0


# Records in one call.
MAX_IMPORTED: Final = 1_000
# Half of the server's default limit of a body; a larger record is sent alone.
_PART_BYTES: Final = 2 * 1024 * 1024


def batches(records: Iterable[tuple[_S, int]]) -> Iterator[list[_S]]:
    """Return records, given with their sizes in bytes, as they fit into a request."""
    return in_parts(records, most=MAX_IMPORTED, size=_PART_BYTES)


# The resource that each kind of record counts for in rates and quotas.
_RESOURCES: Final[Mapping[type[ExportedRecord], Resource]] = {
    ExportedMessage: "messages",
    ExportedFile: "messages",
    ExportedMemory: "memories",
    ExportedSchedule: "schedules",
    ExportedReminder: "schedules",
}


def amounts_of_records(records: Sequence[AnyRecord]) -> Mapping[Resource, int]:
    """Return how much records add."""
    return Counter(resource for record in records if (resource := _RESOURCES.get(type(record))) is not None)


class ReadExport(Call[ExportPage], kw_only=True, frozen=True):
    """Return a page of an export: everything about a user, a session, an agent or a workspace; without any, everything.

    The export of a user has what belongs to that user in all agents and workspaces, or in those that are given. A
    session needs its agent and workspace. The first page has a header and the number of records by part; `cursor`
    returns the next page. A token for one user exports that user; everything else needs the scope operate. Vectors and
    indexes are not in it: they are made again. `admin.export_file` writes a whole export. Raises `Rejected` and
    `NotFound`.
    """

    route: ClassVar = "GET /v1/export/records"
    user: Annotated[str | None, label("Everything about this end user.")] = None
    agent: Annotated[str | None, label("Only of this agent.")] = None
    workspace: Annotated[str | None, label("Only in this workspace.")] = None
    session: Annotated[str | None, label("Only this session.")] = None
    cursor: Annotated[str | None, Meta(description="Go on after this page.")] = None
    dry_run: Annotated[bool, Meta(description="Only count the records.")] = False


class ImportRecords(Call[ImportReport], kw_only=True, frozen=True):
    """Store the records of an export that are not there yet, with their ids and times; send them in their order.

    Stored rows stay as they are, so sending records again changes nothing, and continues an import that was
    interrupted. They are chunked, embedded and indexed like all stored content. With a `user`, all of them become
    that user's. Without the scope operate, only sessions, messages, files and memories are taken, and nothing that is
    shared. Unless the file is `trusted`, shared memories wait for approval, promotions and recall events are left out,
    and schedules that call a webhook are paused. With `dry_run` nothing is stored. `admin.import_file` sends a whole
    file. Raises `Rejected`, naming the record at fault, `Conflict` for an id that somebody else has, and
    `QuotaExceeded`, if they would not fit although none is there yet.
    """

    route: ClassVar = "POST /v1/import/records"
    # As large as the call that ingests a file, because the largest record holds the text of a file.
    body_bytes: ClassVar = 2 * MAX_FILE_BYTES + 1024 * 1024
    response_timeout_seconds: ClassVar = 120.0
    records: Annotated[Sequence[AnyRecord], Meta(max_length=MAX_IMPORTED, description="Records of an export.")]
    exported_at: Annotated[datetime | None, Meta(description="When the export was made.")] = None
    tenants: Annotated[
        Mapping[str, Sequence[str]], Meta(description="The workspaces of the export by tenant, from its header.")
    ] = {}
    user: Annotated[str | None, label("The end user to whom all of it shall belong. Default: as in the export.")] = None
    trusted: Annotated[
        bool, Meta(description="Take over approvals, promotions, recall events and webhooks as they are.")
    ] = False
    dry_run: Annotated[bool, Meta(description="Only check and count.")] = False
    first: Annotated[bool, Meta(description="These records begin a file: note the import in the audit log.")] = False
    lenient: Annotated[
        bool,
        Meta(
            description="Leave out records whose id is taken, instead of refusing the call; and records that were"
            " erased since `exported_at`, instead of storing them again."
        ),
    ] = False

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        if self.dry_run:
            return {}
        return amounts_of_records(self.records)


_LABELS: Final = frozenset(
    ("id", "session", "user", "channel", "owner_user_id", "recipient", "schedule", "item_id", "found", "found_session",
     "note_id", "ref_code", "provider", "chat_id", "name", "run", "schedule_name", "source_message", "superseded_by")
)  # fmt: skip
_TEXT_BYTES: Final = contract.MAX_CONTENT_BYTES
_LARGE: Final = frozenset({"content", "original"})


def check_record(record: ExportedRecord) -> None:
    """Raise `Rejected`, naming the field, unless a record can be stored as it is."""
    check_workspace(record.workspace)
    check_agent(record.agent)
    for field in record.__struct_fields__:
        if not isinstance(record, ExportedItem) or not isinstance(getattr(record, field), (list, dict)):
            _check_value(field, getattr(record, field))
    match record:
        case ExportedChannel():
            _check_as(record, CreateChannel)
        case ExportedSession():
            _check_as(record, StartSession, session=record.id)
            for user in record.users:
                check_label("users", user, required=True)
        case ExportedMessage():
            _check_message(record)
        case ExportedFile():
            _check_file(record)
        case ExportedMemory():
            _check_memory(record)
        case ExportedScratchpadList():
            _check_as(record, WriteScratchpad)
        case ExportedScratchpadKey():
            _check_as(record, WriteScratchpadKey, value=_decoded(record.value))
        case ExportedItem():
            _check_as(record, PutItem, index=record.index_fields)
        case ExportedReminder():
            _check_as(record, Remind)
        case ExportedContext():
            _check_as(record, ServedContext)
        case ExportedSchedule():
            from reverie.scheduling.cadence import check_form  # and with it all of cron

            draft = _check_as(record, scheduling.ScheduleDraft)
            check_form(draft.cadence)
            check_executor(draft.executor)


def _check_value(field: str, value: object) -> None:
    """Raise `Rejected` unless a value is one that any record may have in this field."""
    if isinstance(value, datetime):
        check_time(field, value)
    elif field in _LABELS:
        check_label(field, value)
    elif isinstance(value, str):
        check_text(field, value, MAX_FILE_BYTES if field in _LARGE else _TEXT_BYTES)
    elif isinstance(value, (list, dict)):
        check_json(field, value, _TEXT_BYTES)
    elif isinstance(value, int) and not 0 <= value < MAX_INTEGER:
        raise Rejected(f"{field} is {value}, which is out of range", field=field)


def _check_as(record: ExportedRecord, kind: type[_S], **fields: Any) -> _S:
    """Check the fields of a record as those of the call, or the draft, that stores such a row, and return it."""
    names = [name for name in kind.__struct_encode_fields__ if name in record.__struct_fields__]
    given = convert({name: getattr(record, name) for name in names} | fields, kind, name=part_of(record))
    return check_fields(given)


def _decoded(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise Rejected("value is not JSON", field="value") from None


def _check_message(record: ExportedMessage) -> None:
    names = [name for name in MessagePayload.__struct_fields__ if name in record.__struct_fields__]
    fields = {name: getattr(record, name) for name in names if name not in ("created_at", "user", "sequence")}
    check_payload(MessagePayload(**fields, created_at=to_micros(record.created_at), user=record.user))
    if not 0 < record.sequence < MAX_INTEGER:
        raise Rejected("sequence is out of range", field="sequence")


def _check_file(record: ExportedFile) -> None:
    names = [name for name in FilePayload.__struct_fields__ if name in record.__struct_fields__]
    fields = {name: getattr(record, name) for name in names if name != "created_at"}
    check_payload(FilePayload(**fields, created_at=to_micros(record.created_at)))


def _check_memory(record: ExportedMemory) -> None:
    # Some fields are not checked: a memory may be imported that has expired since, that waits for approval, or whose
    # id was allowed when it was stored.
    unchecked = ("id", "expires_at", "visibility")
    names = [name for name in MemoryDraft.__struct_fields__ if name in record.__struct_fields__]
    draft = MemoryDraft(**{name: getattr(record, name) for name in names if name not in unchecked})
    if record.tags != list(check_memory(draft, now=0).tags):
        raise Rejected("tags must be trimmed, lower case and without duplicates", field="tags")
    if record.access_count < 0:
        raise Rejected("access_count must not be negative", field="access_count")
    if (record.category, record.key, record.value) != (None, None, None):
        check_fields(SetFact(record.category or "", record.key or "", record.value or ""))


def described(record: ExportedRecord) -> str:
    """Return how errors name a record."""
    name = getattr(record, "id", None) or getattr(record, "session", None) or getattr(record, "item_id", "")
    return f"{part_of(record)} {name!r} of agent {record.agent!r} in workspace {record.workspace!r}"


def decode_record(line: bytes) -> ExportedRecord:
    """Return the record of a line. Raises `Rejected`."""
    try:
        found: ExportedRecord = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"it is no record of an export: {error}", field="records") from None
    check_keys(line, name="it")
    return found


_decoder: Final = msgspec.json.Decoder(AnyRecord)
