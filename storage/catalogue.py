"""Every table of a store, each described once: its key, and what erasure, export, undo, quotas and checks do with it.

Work on all tables follows these entries, so a new table is one entry. `tests/unit/test_catalogue.py` fails for a table
without one. A table comes after those that its rows refer to.

SQL in an entry is about the rows of one agent, `:agent`. An erasure binds its subject (`:id`, `:session`, `:before`:
see `Subject`), the keys of the rows that it has selected, by table (`:sessions` and so on), and `:names`, the ids of
the selected sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from reverie.contract import EXTRACT_MEMORIES
from reverie.trust.calls import ErasureKind
from storage.rows import valid_json

# The kinds that a tombstone may name. A selection is several messages and memories. A file cannot be erased by itself,
# but it can be deleted.
SubjectKind = ErasureKind | Literal["file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How the rows of a table count in `stored_amounts`: the bytes of some columns, and one of an amount for each row.

    A row counts if `condition` holds. `tenant` is SQL for the row's tenant. Both name columns of `{row}`. `watched` are
    the columns whose changes affect them.
    """

    columns: tuple[str, ...]
    amount: Literal["", "messages", "memories", "schedules"] = ""
    condition: str = "1"
    tenant: str = "''"
    watched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The part of a row that the curation log records, before and after, when jobs change a table.

    Without `columns`, all columns are recorded. `blobs` are recorded in hexadecimal. With `of`, an UPDATE is only
    recorded if it names one of these columns. An undo restores the recorded columns.
    """

    events: tuple[Literal["INSERT", "UPDATE", "DELETE"], ...]
    columns: str = ""
    blobs: tuple[str, ...] = ()
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The source of the records of a part of an export, and how an import finds the records that are stored already.

    In SQL, `t` is the table, and `s` the session of a row if the row refers to one. `source` is the FROM of other
    cases; its first table has the agent. `order` are the columns by which the records are ordered. `of_user` selects
    the rows of `:user`, `of_session` those of `:session`; by default the `users` and the session of the table do.
    `expressions` are SQL of fields that are not columns. The account's store has only the parts `in_account`.

    A record is stored already if a row has its `id` in that column or in `other_id`, or if `same` finds a row.
    """

    part: str
    source: str = ""
    order: tuple[str, ...] = ("t.id",)
    of_user: str = ""
    of_session: str = ""
    expressions: Mapping[str, str] = field(default_factory=dict)
    in_account: bool = False
    other_id: str = ""
    same: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    `key` names a row; its last column is the one by which the rows of an agent are selected. `refers` are the columns
    that name a row of another table; this row is deleted together with that row. A table that `has_session_id` names a
    session that may not be stored. `users` are the columns that name an end user, and `json` those that hold JSON.

    Rows `of_agent` have an `agent_id`, and go with the agent unless they `outlive` it. A store has an agent if a table
    that `is_root` has a row of it.

    Erasure: `about` selects the rows about a subject, by the kind of the subject, and `belongs` the rows that belong to
    rows selected before. `removed` selects the rows to remove, if these are not the selected ones. `names` are the
    columns whose values may be in log lines. The meaning of a text can be read from the column `vector`.

    `words` says that the table may hold texts that users and agents stored. Records of work may quote such texts in the
    columns `quotes`: `unquote`, a statement that ends with the column `quoted_by`, then removes them.

    `exported` says which part of an export has the rows. Reports on backups count the rows of `summed` tables.
    """

    key: tuple[str, ...]
    refers: Mapping[str, str] = field(default_factory=dict)
    has_session_id: bool = False
    users: tuple[str, ...] = ()
    json: tuple[str, ...] = ()
    about: Mapping[SubjectKind, str] = field(default_factory=dict)
    belongs: str = ""
    removed: str = ""
    names: tuple[str, ...] = ()
    vector: str = ""
    of_agent: bool = True
    outlives: bool = False
    is_root: bool = False
    words: bool = False
    quotes: tuple[str, ...] = ()
    quoted_by: str = ""
    unquote: str = ""
    counted: Counted | None = None
    recorded: Recorded | None = None
    exported: Exported | None = None
    summed: bool = False

    @property
    def has_session_row(self) -> bool:
        """Return whether rows refer to the row of a session."""
        return "session_row" in self.refers


def listed(name: str) -> str:
    """Return SQL for the values of a parameter that is a collection."""
    return f"(SELECT value FROM json_each(:{name}))"


_IN_SESSIONS: Final = f"session_row IN {listed('sessions')}"
_CHUNKS: Final = (
    f"({_IN_SESSIONS} OR file_row IN {listed('files')} OR memory_row IN {listed('memories')}"
    f" OR id IN (SELECT l.chunk_id FROM message_chunks AS l WHERE l.message_row IN {listed('messages')}"
    " AND NOT EXISTS (SELECT 1 FROM message_chunks AS o WHERE o.chunk_id = l.chunk_id"
    f" AND o.message_row NOT IN {listed('messages')})))"
)
_OF_CHUNKS: Final = f"chunk_id IN (SELECT id FROM chunks WHERE agent_id = :agent AND {_CHUNKS})"
# The session of an erased message. A memory of the account names its session in the metadata. If a memory names a
# message but no session, the message may belong to this session.
_ROW_OF_SESSION: Final = "(SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :session)"
MEMORY_METADATA: Final = valid_json("memories.metadata")
_OF_ITS_SESSION: Final = (
    f"coalesce((SELECT id FROM sessions WHERE row_id = memories.session_row), {MEMORY_METADATA} ->> 'session',"
    " :session) = :session"
)
# The groups of a user. If a group has other users, it stays theirs.
_MEMBER: Final = "row_id IN (SELECT session_row FROM session_users WHERE agent_id = :agent AND user_id = :id)"
_HAS_OTHER_USERS: Final = (
    "EXISTS (SELECT 1 FROM session_users AS u WHERE u.session_row = sessions.row_id AND u.user_id <> :id)"
)
SHARED_GROUP: Final = f"is_group AND {_MEMBER} AND {_HAS_OTHER_USERS}"
_LONE_GROUP: Final = f"(is_group AND {_MEMBER} AND NOT {_HAS_OTHER_USERS})"
# LangGraph's callers name users by a label, such as ("memories", "kate"): an erasure of a user also removes items of
# the agent whose namespace has the user's id as a label.
_ITEM_OF_USER: Final = (
    "(items.user_id = :id OR items.user_id IS NULL"
    f" AND EXISTS (SELECT 1 FROM json_each({valid_json('items.namespace')}) AS label WHERE label.value = :id))"
)
_STORED_BEFORE: Final = "stored_at <= :before"
_MADE_BEFORE: Final = "created_at <= :before"
_SUMMARY: Final = "summary_text, summary_epoch, summary_upper_sequence, status, ended_at"

# The condition for items that wait to be embedded equals that of their index.
ITEMS_TO_EMBED: Final = "embedding_model IS NULL AND index_fields IS NOT NULL"
# Goals that a run would recall without the vector of the model that the store searches by.
GOALS_TO_EMBED: Final = (
    "status IN ('active', 'paused', 'disabled') AND recall_limit > 0"
    " AND coalesce(goal_model, '') <> (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"
)
# A person's export has the sessions of groups, but of their messages only what that person said.
OWN: Final = "(s.user_id = :user AND NOT s.is_group)"
OWN_SESSIONS: Final = (
    f"(SELECT s.id FROM sessions AS s WHERE s.agent_id = :agent AND {OWN} AND (:session IS NULL OR s.id = :session))"
)
_ALL: Final = ":user IS NULL OR NOT t.is_group"
_SUCCESSOR_IN_EXPORT: Final = (
    "(:user IS NULL OR b.owner_user_id = :user OR b.owner_user_id IS NULL AND EXISTS (SELECT 1 FROM sessions AS o"
    " WHERE o.row_id = b.session_row AND o.user_id = :user AND NOT o.is_group))"
    " AND (:session IS NULL OR b.session_row = t.session_row)"
)
_PAYLOAD: Final = "CAST(t.payload AS TEXT)"
_SESSION_ROW: Final = "session_row = (SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :session)"


def of_owner(table: str) -> str:
    """Return SQL for the rows of a user: rows that name the user, or that name a session of this user alone."""
    return f"{table}.user_id = :user OR ({table}.user_id IS NULL AND {table}.session_id IN {OWN_SESSIONS})"


TABLES: Final[Mapping[str, Table]] = {
    # Content of users and agents.
    "channels": Table(key=("row_id",), is_root=True, words=True, exported=Exported(part="channels", of_user="0")),
    "sessions": Table(
        key=("row_id",),
        is_root=True,
        users=("user_id",),
        json=("metadata",),
        about={
            "session": "id = :id AND started_at <= :before",
            "user": f"(user_id = :id AND NOT is_group OR {_LONE_GROUP}) AND started_at <= :before",
            "agent": "started_at <= :before",
        },
        names=("id", "user_id", "chat_id", "ref_code"),
        words=True,
        recorded=Recorded(events=("UPDATE",), columns=f"row_id, {_SUMMARY}", of=_SUMMARY),
        exported=Exported(
            part="sessions",
            of_user="t.user_id = :user OR t.is_group AND EXISTS (SELECT 1 FROM session_users AS u"
            " WHERE u.session_row = t.row_id AND u.user_id = :user)",
            of_session="t.id = :session",
            expressions={
                "user": "coalesce(:user, t.user_id)",
                "users": "CASE WHEN t.is_group AND :user IS NULL THEN (SELECT json_group_array(u.user_id) FROM"
                " (SELECT user_id FROM session_users WHERE session_row = t.row_id ORDER BY user_id) AS u)"
                " ELSE '[]' END",
                "summary_text": f"CASE WHEN {_ALL} THEN t.summary_text END",
                "summary_epoch": f"CASE WHEN {_ALL} THEN t.summary_epoch ELSE 0 END",
                "summary_upper_sequence": f"CASE WHEN {_ALL} THEN t.summary_upper_sequence ELSE 0 END",
                "extracted_up_to": "coalesce((SELECT p.position FROM job_progress AS p"
                f" WHERE p.job = '{EXTRACT_MEMORIES}' AND p.item = t.ref_code), 0)",
            },
        ),
        summed=True,
    ),
    "session_users": Table(key=("session_row", "user_id"), refers={"session_row": "sessions"}, users=("user_id",)),
    # Erased messages: one by its id, or the messages of a user in groups that stay with other users.
    "messages": Table(
        key=("row_id",),
        refers={"session_row": "sessions"},
        json=("metadata", "tags", "tool_calls"),
        about={
            "message": f"id = :id AND session_row = {_ROW_OF_SESSION} AND {_STORED_BEFORE}",
            "user": f"user_id = :id AND {_STORED_BEFORE} AND session_row IN"
            f" (SELECT row_id FROM sessions WHERE agent_id = :agent AND {SHARED_GROUP})",
        },
        removed=f"({_IN_SESSIONS} OR row_id IN {listed('messages')})",
        names=("id",),
        words=True,
        counted=Counted(columns=("content", "metadata", "tool_calls", "original"), amount="messages"),
        recorded=Recorded(events=("UPDATE",), columns="row_id, consolidated_at", of="consolidated_at"),
        exported=Exported(
            part="messages",
            source="sessions AS s CROSS JOIN messages AS t ON t.session_row = s.row_id",
            order=("s.id", "t.sequence"),
            of_user=f"{OWN} OR t.user_id = :user",
            expressions={"consolidated_at": "CASE WHEN :user IS NULL OR NOT s.is_group THEN t.consolidated_at END"},
        ),
        summed=True,
    ),
    "files": Table(
        key=("row_id",),
        is_root=True,
        refers={"session_row": "sessions"},
        users=("user_id",),
        json=("metadata", "tags"),
        about={
            "agent": f"session_row IS NULL AND {_STORED_BEFORE}",
            "user": f"user_id = :id AND {_STORED_BEFORE}",
            "file": f"id = :id AND {_STORED_BEFORE}",
        },
        removed=f"({_IN_SESSIONS} OR row_id IN {listed('files')})",
        names=("id",),
        words=True,
        counted=Counted(columns=("content", "metadata"), amount="messages"),
        exported=Exported(part="files"),
        summed=True,
    ),
    "memories": Table(
        key=("row_id",),
        is_root=True,
        refers={"session_row": "sessions", "superseded_by": "memories"},
        users=("owner_user_id",),
        json=("metadata", "tags", "concept_tags"),
        about={
            "message": f"{_OF_ITS_SESSION} AND (source_message = :id OR EXISTS (SELECT 1 FROM"
            f" json_each({MEMORY_METADATA}, '$.evidence') WHERE value = :id)) AND {_STORED_BEFORE}",
            "memory": f"(id = :id OR note_id = :id) AND {_STORED_BEFORE}",
            "user": f"owner_user_id = :id AND {_STORED_BEFORE}",
            "agent": _STORED_BEFORE,
        },
        belongs=_IN_SESSIONS,
        names=("id",),
        words=True,
        # In the account's file memories belong to a tenant.
        counted=Counted(
            columns=("content", "value", "metadata"),
            amount="memories",
            condition="{row}.superseded_by IS NULL",
            tenant="coalesce({row}.tenant, '')",
            watched=("superseded_by", "tenant"),
        ),
        recorded=Recorded(events=("INSERT", "UPDATE", "DELETE")),
        exported=Exported(
            part="memories",
            source="memories AS t LEFT JOIN sessions AS s ON s.row_id = t.session_row"
            " LEFT JOIN memories AS b ON b.row_id = t.superseded_by"
            " LEFT JOIN memory_promotions AS p ON p.agent_id = t.agent_id AND p.memory_id = t.id",
            expressions={
                "superseded_by": "CASE WHEN b.row_id IS NULL THEN NULL"
                f" WHEN {_SUCCESSOR_IN_EXPORT} THEN b.id ELSE t.id END",
                "promoted_at": "p.promoted_at",
                "promotion_score": "p.score",
                "promotion_phase": "p.phase",
            },
            in_account=True,
            other_id="note_id",
        ),
        summed=True,
    ),
    "memory_promotions": Table(
        key=("agent_id", "memory_id"),
        removed=f"memory_id IN (SELECT id FROM memories WHERE agent_id = :agent AND row_id IN {listed('memories')})",
        quotes=("memory_id",),
        recorded=Recorded(events=("INSERT", "UPDATE", "DELETE")),
    ),
    "scratchpads": Table(
        key=("session_row", "key"),
        refers={"session_row": "sessions"},
        json=("value",),
        removed=_IN_SESSIONS,
        words=True,
        counted=Counted(columns=("key", "value")),
        exported=Exported(
            part="scratchpads",
            source="sessions AS s CROSS JOIN scratchpads AS t ON t.session_row = s.row_id",
            order=("s.id", "t.key"),
            same=f"key = :key AND {_SESSION_ROW}",
        ),
    ),
    "scratchpad_lists": Table(
        key=("session_row",),
        refers={"session_row": "sessions"},
        json=("items",),
        removed=_IN_SESSIONS,
        words=True,
        counted=Counted(columns=("items",)),
        exported=Exported(
            part="scratchpad_lists",
            source="sessions AS s JOIN scratchpad_lists AS t ON t.session_row = s.row_id",
            order=("s.id",),
            same=_SESSION_ROW,
        ),
    ),
    "items": Table(
        key=("row_id",),
        is_root=True,
        users=("user_id",),
        json=("namespace", "value", "index_fields"),
        about={"user": f"{_ITEM_OF_USER} AND {_STORED_BEFORE}", "agent": _STORED_BEFORE},
        words=True,
        counted=Counted(columns=("namespace", "key", "value")),
        exported=Exported(
            part="items",
            order=("coalesce(t.user_id, '')", "t.namespace", "t.key"),
            of_user="t.user_id = :user OR t.user_id IS NULL"
            f" AND EXISTS (SELECT 1 FROM json_each({valid_json('t.namespace')}) AS label WHERE label.value = :user)",
            same="coalesce(user_id, '') = coalesce(:user, '') AND namespace = :namespace AND key = :key",
        ),
        summed=True,
    ),
    "item_vectors": Table(
        key=("row_id",),
        of_agent=False,
        refers={"item_row": "items"},
        removed=f"item_row IN {listed('items')}",
        vector="embedding",
        words=True,
    ),
    # Rows that the pipeline makes from the content above.
    "chunks": Table(
        key=("id",),
        refers={"session_row": "sessions", "file_row": "files", "memory_row": "memories"},
        json=("metadata",),
        removed=_CHUNKS,
        words=True,
        recorded=Recorded(
            events=("DELETE",),
            columns="id, agent_id, session_row, file_row, memory_row, text, lead, sequence_start, sequence_end,"
            " metadata, created_at, stored_at, embedded_at, indexed_at, access_count, accessed_at",
            blobs=("content_hash",),
        ),
        summed=True,
    ),
    "message_chunks": Table(
        key=("message_row", "chunk_id"), of_agent=False, refers={"message_row": "messages", "chunk_id": "chunks"}
    ),
    "chunk_tags": Table(
        key=("tag", "chunk_id"),
        of_agent=False,
        refers={"chunk_id": "chunks"},
        recorded=Recorded(events=("INSERT", "DELETE"), columns="tag, chunk_id"),
    ),
    "chunks_vec": Table(
        key=("chunk_id", "model"),
        of_agent=False,
        refers={"chunk_id": "chunks"},
        removed=_OF_CHUNKS,
        vector="embedding",
        words=True,
        recorded=Recorded(events=("DELETE",), columns="chunk_id, model, dim", blobs=("embedding",)),
    ),
    "forward_index": Table(
        key=("agent_id", "chunk_id"),
        recorded=Recorded(
            events=("DELETE",),
            columns="agent_id, chunk_id, thread, sequence, created_at, role, speaker, audience",
            blobs=("words",),
        ),
    ),
    "forward_changes": Table(key=("seq",), outlives=True),
    "indexes": Table(key=("id",), of_agent=False),
    "claims": Table(key=("stage", "item_id"), of_agent=False),
    "broker_content": Table(key=("seq",), of_agent=False),
    "stored_amounts": Table(key=("tenant",), of_agent=False),
    "forgotten_sessions": Table(key=("agent_id", "session_id"), outlives=True),
    # Work that agents have ordered.
    "schedules": Table(
        key=("agent_id", "id"),
        is_root=True,
        has_session_id=True,
        users=("user_id",),
        json=("cadence", "executor"),
        about={"user": f"user_id = :id AND {_MADE_BEFORE}", "agent": _MADE_BEFORE},
        names=("id",),
        words=True,
        counted=Counted(columns=("goal", "cadence", "executor"), amount="schedules"),
        exported=Exported(part="schedules"),
        summed=True,
    ),
    "schedule_runs": Table(
        key=("id",),
        refers={"schedule_id": "schedules"},
        removed="id IN (SELECT id FROM schedule_runs WHERE agent_id = :agent"
        f" AND schedule_id IN {listed('schedules')})",
        names=("id",),
        quotes=("summary", "output", "error"),
        unquote="UPDATE schedule_runs SET summary = '', output = '', error = '' WHERE id",
        exported=Exported(
            part="runs",
            source="schedules AS d JOIN schedule_runs AS t ON t.agent_id = d.agent_id AND t.schedule_id = d.id",
            order=("d.id", "t.id"),
            of_user=of_owner("d"),
            of_session="d.session_id = :session",
        ),
    ),
    "reminders": Table(
        key=("agent_id", "id"),
        is_root=True,
        has_session_id=True,
        users=("recipient", "user_id"),
        about={"user": f"(recipient = :id OR user_id = :id) AND {_MADE_BEFORE}", "agent": _MADE_BEFORE},
        names=("id",),
        words=True,
        counted=Counted(
            columns=("message",),
            amount="schedules",
            condition="{row}.delivered_at IS NULL",
            watched=("delivered_at",),
        ),
        exported=Exported(part="reminders", of_user=f"t.recipient = :user OR {of_owner('t')}"),
        summed=True,
    ),
    "notifications": Table(
        key=("id",),
        is_root=True,
        has_session_id=True,
        users=("user_id",),
        about={"user": f"user_id = :id AND {_MADE_BEFORE}", "agent": _MADE_BEFORE},
        belongs=f"(session_id IN {listed('names')} OR schedule_id IN {listed('schedules')})",
        quotes=("title", "body", "error"),
        exported=Exported(part="notifications"),
    ),
    # Records of work. A dead letter names a session by its id or its chat: `:chats` and `:chats_of_message` have both.
    "dead_letters": Table(
        key=("id",),
        is_root=True,
        about={
            "message": f"item_id = :id AND session_id IN {listed('chats_of_message')}",
            "user": f"json_valid(CAST(payload AS TEXT)) AND CAST(payload AS TEXT) ->> 'user' = :id AND {_MADE_BEFORE}",
            "agent": _MADE_BEFORE,
        },
        belongs=f"session_id IN {listed('chats')}",
        words=True,
        exported=Exported(
            part="dead_letters",
            order=("t.stage", "t.item_id", "t.variant"),
            of_user=f"(json_valid({_PAYLOAD}) AND {_PAYLOAD} ->> 'user' = :user) OR t.session_id IN {OWN_SESSIONS}",
            of_session="t.session_id = :session",
            same="stage = :stage AND item_id = :item_id AND variant = :variant",
        ),
        summed=True,
    ),
    # The events of a user's own recalls, whatever they found.
    "recall_events": Table(
        key=("id",),
        refers={"chunk_id": "chunks"},
        users=("user_id",),
        about={"user": "user_id = :id AND at <= :before"},
        removed=f"id IN (SELECT id FROM recall_events WHERE {_OF_CHUNKS}"
        " UNION SELECT CAST(value AS INTEGER) FROM json_each(:recall_events))",
        quotes=("query",),
        recorded=Recorded(events=("DELETE",), columns="id, agent_id, recall, chunk_id, query, score, at, user_id"),
        exported=Exported(
            part="recall_events",
            source="recall_events AS t JOIN chunks AS c ON c.id = t.chunk_id"
            " LEFT JOIN files AS f ON f.row_id = c.file_row"
            " LEFT JOIN messages AS m ON m.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)"
            " LEFT JOIN memories AS k ON k.row_id = c.memory_row LEFT JOIN sessions AS s ON s.row_id = c.session_row",
            order=("t.recall", "t.chunk_id"),
            of_user="t.user_id = :user",
            of_session="s.id = :session",
            expressions={
                "found_kind": "CASE WHEN c.memory_row IS NOT NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message'"
                " ELSE 'file' END",
                "found": "coalesce(m.id, f.id, k.id)",
                "found_session": "CASE WHEN m.id IS NOT NULL THEN s.id END",
                "chunk": "lower(hex(c.content_hash))",
                "in_account": "coalesce(k.tier = 'account', 0)",
            },
            in_account=True,
        ),
    ),
    # A context names by their ids the items that it told, so it is erased with any of them.
    "contexts": Table(
        key=("id",),
        refers={"session_row": "sessions"},
        users=("user_id",),
        json=("items",),
        about={"user": "user_id = :id AND at <= :before"},
        removed=f"({_IN_SESSIONS} OR id IN {listed('contexts')})",
        quotes=("query", "degraded", "items"),
        exported=Exported(part="contexts"),
    ),
    "captured_queries": Table(
        key=("id",),
        refers={"session_row": "sessions"},
        users=("user_id",),
        json=("parameters", "found"),
        about={"user": "user_id = :id AND at <= :before", "agent": "at <= :before"},
        removed=f"({_IN_SESSIONS} OR id IN {listed('captured_queries')})",
        quotes=("query", "parameters", "found"),
    ),
    "curation_log": Table(
        key=("id",),
        is_root=True,
        about={"agent": "at <= :before"},
        quotes=("why",),
    ),
    "curation_items": Table(key=("entry_id", "memory_id"), refers={"entry_id": "curation_log"}),
    "curation_changes": Table(
        key=("seq",),
        of_agent=False,
        refers={"entry_id": "curation_log"},
        json=("before", "after"),
        removed=f"entry_id IN {listed('curation_log')}",
        quotes=("before", "after"),
        quoted_by="entry_id",
        unquote="DELETE FROM curation_log WHERE id",
    ),
    "curation_recording": Table(key=("entry_id",), of_agent=False),
    "job_leases": Table(key=("job",), of_agent=False),
    "job_progress": Table(key=("job", "item"), of_agent=False),
    # Counts by the hash of an agent's name, which outlive the agent: a later one of the name gets no replaced secret.
    "webhook_rotations": Table(key=("agent_hash",), of_agent=False),
    # Tables of the account alone.
    "job_runs": Table(
        key=("id",),
        of_agent=False,
        json=("counts",),
        quotes=("error", "counts"),
        unquote="UPDATE job_runs SET error = iif(error IS NULL, NULL, '[erased]'), counts = '{}' WHERE id",
    ),
    "language_model_usage": Table(key=("day", "model", "purpose"), of_agent=False),
    "pipeline_samples": Table(key=("minute",), of_agent=False),
    "tokens": Table(key=("id",), of_agent=False, json=("scopes", "agents"), words=True),
    "tenants": Table(key=("workspace",), of_agent=False),
    "quotas": Table(key=("holder", "name", "resource"), of_agent=False),
    "audit_log": Table(key=("id",), words=True, outlives=True),
    "audit_retention": Table(key=("only_row",), of_agent=False),
    "erasures": Table(key=("id",), json=("counts",), outlives=True),
    "erasure_fragments": Table(key=("seq",), of_agent=False, refers={"erasure_id": "erasures"}),
    "forgets": Table(key=("id",)),
}
