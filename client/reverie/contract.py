"""The contract between agents and workers: names of tasks and queues, limits, and versioned payloads.

Both sides import this module and nothing else of each other. A payload is JSON in the inbox; `v` is the version of its
format. A worker turns a payload of a newer version into a dead letter, which can be replayed after an upgrade.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

PAYLOAD_VERSION: Final = 1

# Names of tasks. Workers register exactly these; a test checks this.
INGEST_MESSAGES: Final = "reverie.ingest_messages"
CHUNK_MESSAGES: Final = "reverie.chunk_messages"
EMBED_CHUNKS: Final = "reverie.embed_chunks"
INDEX_CHUNKS: Final = "reverie.index_chunks"
RECORD_RECALLS: Final = "reverie.record_recalls"
RECOVER_INBOX: Final = "reverie.recover_inbox"
SWEEP_STAGES: Final = "reverie.sweep_stages"
BACKFILL_EMBEDDINGS: Final = "reverie.backfill_embeddings"
OPTIMIZE_STORE: Final = "reverie.optimize_store"
VERIFY_STORE: Final = "reverie.verify_store"
CONSOLIDATE_MEMORIES: Final = "reverie.consolidate_memories"
PRUNE_DECAYED: Final = "reverie.prune_decayed"
CONSOLIDATE_CONVERSATIONS: Final = "reverie.consolidate_conversations"
SUMMARIZE_SESSIONS: Final = "reverie.summarize_sessions"
EXTRACT_MEMORIES: Final = "reverie.extract_memories"
DREAM_SWEEP: Final = "reverie.dream_sweep"
CLOSE_IDLE_SESSIONS: Final = "reverie.close_idle_sessions"
APPLY_RETENTION: Final = "reverie.apply_retention"
RUN_DUE_SCHEDULES: Final = "reverie.run_due_schedules"
RUN_SCHEDULE: Final = "reverie.run_schedule"
DELIVER_REMINDERS: Final = "reverie.deliver_reminders"
EMBED_GOALS: Final = "reverie.embed_goals"
EMBED_ITEMS: Final = "reverie.embed_items"
CONTINUE_ERASURES: Final = "reverie.continue_erasures"
BACK_UP: Final = "reverie.back_up"

# Names of queues.
QUEUE_INGEST: Final = "ingest"
QUEUE_INDEX: Final = "index"
QUEUE_EMBED: Final = "embed"
QUEUE_MAINTENANCE: Final = "maintenance"
QUEUE_SCHEDULES: Final = "schedules"
QUEUES: Final = (QUEUE_INGEST, QUEUE_INDEX, QUEUE_EMBED, QUEUE_MAINTENANCE, QUEUE_SCHEDULES)

TASK_QUEUES: Final[dict[str, str]] = {
    INGEST_MESSAGES: QUEUE_INGEST,
    CHUNK_MESSAGES: QUEUE_INDEX,
    EMBED_CHUNKS: QUEUE_EMBED,
    INDEX_CHUNKS: QUEUE_INDEX,
    RECORD_RECALLS: QUEUE_MAINTENANCE,
    # Short tasks that keep the pipeline going: they must not wait behind a job that takes minutes.
    RECOVER_INBOX: QUEUE_INDEX,
    SWEEP_STAGES: QUEUE_INDEX,
    BACKFILL_EMBEDDINGS: QUEUE_EMBED,
    OPTIMIZE_STORE: QUEUE_MAINTENANCE,
    VERIFY_STORE: QUEUE_MAINTENANCE,
    CONSOLIDATE_MEMORIES: QUEUE_MAINTENANCE,
    PRUNE_DECAYED: QUEUE_MAINTENANCE,
    CONSOLIDATE_CONVERSATIONS: QUEUE_MAINTENANCE,
    SUMMARIZE_SESSIONS: QUEUE_MAINTENANCE,
    EXTRACT_MEMORIES: QUEUE_MAINTENANCE,
    DREAM_SWEEP: QUEUE_MAINTENANCE,
    CLOSE_IDLE_SESSIONS: QUEUE_MAINTENANCE,
    APPLY_RETENTION: QUEUE_MAINTENANCE,
    RUN_DUE_SCHEDULES: QUEUE_SCHEDULES,
    RUN_SCHEDULE: QUEUE_SCHEDULES,
    DELIVER_REMINDERS: QUEUE_SCHEDULES,
    EMBED_GOALS: QUEUE_EMBED,
    EMBED_ITEMS: QUEUE_EMBED,
    CONTINUE_ERASURES: QUEUE_MAINTENANCE,
    BACK_UP: QUEUE_MAINTENANCE,
}

# How long one call waits for the broker. A script that puts 4 MB into an inbox takes some 10 ms.
BROKER_TIMEOUT_SECONDS: Final = 5.0

# The header that carries the caller's trace id through the queue.
TRACE_HEADER: Final = "reverie_trace"

# The header that says when a task was sent, in seconds since 1970: how long it waited is measured by it.
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

DEFAULT_WORKSPACE: Final = "default"
DEFAULT_AGENT: Final = "default"
# The channel of sessions that name none.
DEFAULT_CHANNEL: Final = "general"
# The store of the account tier, which is shared by all workspaces; not a valid workspace name.
ACCOUNT_STORE: Final = "@account"
DEFAULT_URL: Final = "http://127.0.0.1:7437"
DEFAULT_PREFIX: Final = "reverie:"


def agent_queue(workspace: str, name: str) -> str:
    """Return the Celery queue of an agent's workers. None is a queue of Reverie, or of another workspace.

    Neither part contains a full stop, so no two pairs have the same queue.
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


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one accepted item, sent to a producer that waits for it."""

    id: str
    state: Literal["stored", "searchable", "dead", "forgotten"]
    error: str = ""
    degraded: str = ""
