"""The contract between agents and workers: names of tasks and queues, scopes, limits, and versioned payloads.

Both sides import this module and nothing else of each other. A payload is JSON in the inbox; `v` is the version of its
format. A worker turns a payload of a newer version into a dead letter, which can be replayed after an upgrade.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

PAYLOAD_VERSION: Final = 1

# Names of queues.
QUEUE_INGEST: Final = "ingest"
QUEUE_INDEX: Final = "index"
QUEUE_EMBED: Final = "embed"
QUEUE_MAINTENANCE: Final = "maintenance"
QUEUE_EXTRACTION: Final = "extraction"
QUEUE_SCHEDULES: Final = "schedules"
QUEUES: Final = (QUEUE_INGEST, QUEUE_INDEX, QUEUE_EMBED, QUEUE_MAINTENANCE, QUEUE_EXTRACTION, QUEUE_SCHEDULES)

# The queue of each task, by the names below; and the names of the periodic jobs, as a person writes them.
TASK_QUEUES: Final[dict[str, str]] = {}
JOB_NAMES: Final[list[str]] = []


def _task(name: str, queue: str) -> str:
    """Name a task and its queue; return its name for Celery. Workers register exactly these; a test checks this."""
    TASK_QUEUES[f"reverie.{name}"] = queue
    return f"reverie.{name}"


def job_name(task: str) -> str:
    """Return the name of a job as a person writes it: `prune-decayed` for the task `reverie.prune_decayed`."""
    return task.removeprefix("reverie.").replace("_", "-")


def _job(name: str, queue: str) -> str:
    """Name the task of a periodic job, whose interval is in `beat_schedule`, and its queue; return it as `_task`."""
    task = _task(name, queue)
    JOB_NAMES.append(job_name(task))
    return task


INGEST_MESSAGES: Final = _task("ingest_messages", QUEUE_INGEST)
CHUNK_MESSAGES: Final = _task("chunk_messages", QUEUE_INDEX)
EMBED_CHUNKS: Final = _task("embed_chunks", QUEUE_EMBED)
INDEX_CHUNKS: Final = _task("index_chunks", QUEUE_INDEX)
RUN_SCHEDULE: Final = _task("run_schedule", QUEUE_SCHEDULES)
EMBED_GOALS: Final = _task("embed_goals", QUEUE_EMBED)
EMBED_ITEMS: Final = _task("embed_items", QUEUE_EMBED)
# Short tasks that keep the pipeline going: they must not wait behind a job that takes minutes.
RECORD_RECALLS: Final = _task("record_recalls", QUEUE_INDEX)
RECOVER_INBOX: Final = _job("recover_inbox", QUEUE_INDEX)
SWEEP_STAGES: Final = _job("sweep_stages", QUEUE_INDEX)
RUN_DUE_SCHEDULES: Final = _job("run_due_schedules", QUEUE_SCHEDULES)
DELIVER_REMINDERS: Final = _job("deliver_reminders", QUEUE_SCHEDULES)
BACKFILL_EMBEDDINGS: Final = _job("backfill_embeddings", QUEUE_EMBED)
# It has a queue of its own, because users wait for the memories, and a text may crash the process that reads it.
EXTRACT_MEMORIES: Final = _job("extract_memories", QUEUE_EXTRACTION)
DREAM_SWEEP: Final = _job("dream_sweep", QUEUE_MAINTENANCE)
CONSOLIDATE_MEMORIES: Final = _job("consolidate_memories", QUEUE_MAINTENANCE)
CONSOLIDATE_CONVERSATIONS: Final = _job("consolidate_conversations", QUEUE_MAINTENANCE)
SUMMARIZE_SESSIONS: Final = _job("summarize_sessions", QUEUE_MAINTENANCE)
PRUNE_DECAYED: Final = _job("prune_decayed", QUEUE_MAINTENANCE)
CLOSE_IDLE_SESSIONS: Final = _job("close_idle_sessions", QUEUE_MAINTENANCE)
APPLY_RETENTION: Final = _job("apply_retention", QUEUE_MAINTENANCE)
OPTIMIZE_STORE: Final = _job("optimize_store", QUEUE_MAINTENANCE)
BACK_UP: Final = _job("back_up", QUEUE_MAINTENANCE)
VERIFY_STORE: Final = _job("verify_store", QUEUE_MAINTENANCE)
# In the queue of schedules, because somebody waits for the receipt: its workers have threads and no low priority.
CONTINUE_ERASURES: Final = _job("continue_erasures", QUEUE_SCHEDULES)

# How long one call waits for the broker. A script that puts 4 MB into an inbox takes some 10 ms.
BROKER_TIMEOUT_SECONDS: Final = 5.0

# The header that carries the caller's trace id through the queue.
TRACE_HEADER: Final = "reverie_trace"

# The header with the time at which a task was sent, in seconds since 1970: its waiting time is measured from it.
SENT_AT_HEADER: Final = "reverie_sent_at"

# A task that its worker has not finished within this time is delivered again. It must exceed the hard time limit of a
# task (300 s), and Celery reads it from three settings that have to agree.
VISIBILITY_TIMEOUT_SECONDS: Final = 600

# Limits of accepted input. Errors quote the limit that they enforce.
MAX_CONTENT_BYTES: Final = 1024 * 1024
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MAX_MESSAGES_PER_CALL: Final = 1_000
MAX_METADATA_BYTES: Final = 64 * 1024
MAX_TOOL_CALLS_BYTES: Final = 1024 * 1024
# With the rest of its message it must fit into the body of a request.
MAX_ORIGINAL_BYTES: Final = 3 * 1024 * 1024
MAX_JSON_DEPTH: Final = 32
MAX_TAGS: Final = 16
MAX_TAG_CHARACTERS: Final = 64
MAX_NAME_CHARACTERS: Final = 256
# Less than the lifetime of a reply list in the broker (900 s).
MAX_WAIT_SECONDS: Final = 600

Role = Literal["user", "assistant", "system", "tool"]
ROLES: Final[tuple[Role, ...]] = ("user", "assistant", "system", "tool")

# Seen by the user that it belongs to, or by all users of the agent.
Visibility = Literal["private", "shared"]

WaitFor = Literal["queued", "stored", "searchable"]
WAITS: Final[tuple[WaitFor, ...]] = ("queued", "stored", "searchable")

# read: see what is stored. write: store and change. forget: delete what is stored. schedule: schedules and reminders.
# operate: workspaces, jobs, dead letters, tokens, the audit log, and what shows or changes the memories of all users:
# the curation log and undo, notebooks and their history, promotions, approvals.
Scope: TypeAlias = Literal["read", "write", "forget", "schedule", "operate"]
# How the text of a stored token begins.
TOKEN_PREFIX: Final = "rv_"  # noqa: S105 - no secret
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

DEFAULT_WORKSPACE: Final = "default"
DEFAULT_AGENT: Final = "default"
# The channel of sessions that name none.
DEFAULT_CHANNEL: Final = "general"
# The store of the account tier, which is shared by all workspaces; not a valid workspace name.
ACCOUNT_STORE: Final = "@account"
DEFAULT_URL: Final = "http://127.0.0.1:7437"
DEFAULT_PREFIX: Final = "reverie:"


def agent_queue(workspace: str, name: str) -> str:
    """Return the Celery queue of an agent's workers. Its name is never that of a queue of Reverie or of another agent.

    Neither the workspace nor the agent contains a full stop, so no two pairs have the same queue.
    """
    return f"agent.{workspace}.{name}"


def chat_key(provider: str, chat_id: str) -> str:
    """Return the id of a session that is named only by provider and chat id; no two chats have the same.

    The first colon ends the provider, so a colon in the provider is escaped, and the escape itself.
    """
    escaped = provider.replace("%", "%25").replace(":", "%3A")
    return f"{escaped}:{chat_id}"


class MessagePayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message"):
    """One message of a session on its way to the store. Times are integer microseconds since 1970, UTC."""

    v: int = PAYLOAD_VERSION
    id: str
    agent: str
    session: str
    role: Role
    content: str
    created_at: int
    trace: str
    name: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[dict[str, Any]] = []
    token_count: int | None = None
    importance: float | None = None
    metadata: dict[str, Any] = {}
    tags: list[str] = []
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    sequence: int | None = None
    strict: bool = False
    visibility: Visibility | None = None
    original: str | None = None
    # Set by a server for a caller that may act for one user only: that user joins no session of others.
    own_sessions_only: bool = False


class FilePayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="file"):
    """The text of a document on its way to the store; indexed again only if its content has changed."""

    v: int = PAYLOAD_VERSION
    id: str
    agent: str
    source_uri: str
    content: str
    created_at: int
    trace: str
    session: str | None = None
    metadata: dict[str, Any] = {}
    tags: list[str] = []
    user: str | None = None
    visibility: Visibility | None = None
    own_sessions_only: bool = False


Payload = MessagePayload | FilePayload

# The fields that identify a message's content, then those of its audience.
_CONTENT_FIELDS: Final = (
    "role",
    "content",
    "name",
    "tool_call_id",
    "tool_name",
    "tool_calls",
    "metadata",
    "tags",
    "original",
)
_AUDIENCE_FIELDS: Final = ("user", "visibility")


def content_hash(message: Any, *, whose: bool = True) -> str:
    """Return a hash of a message's content and, if `whose`, of its audience.

    It is the same for a payload, its stored record and its exported record, and tells whether two messages of a session
    with one id are the same. It does not cover fields that Reverie fills in if the caller omits them (the time, the
    sequence, the importance, the count of tokens), nor fields that are only about the call.
    """
    values = [getattr(message, name) or None for name in (*_CONTENT_FIELDS, *(_AUDIENCE_FIELDS if whose else ()))]
    return hashlib.blake2b(msgspec.json.encode(values, order="sorted"), digest_size=16).hexdigest()


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one accepted item, sent to a producer that waits for it; `field` is the field at fault.

    `conflict` says that a dead item is valid, but conflicts with what is stored. `stored_as` is the id under which an
    unchanged file is stored already.
    """

    id: str
    state: Literal["stored", "searchable", "dead", "forgotten"]
    error: str = ""
    degraded: str = ""
    field: str = ""
    conflict: bool = False
    stored_as: str = ""
