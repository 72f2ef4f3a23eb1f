"""Read the rows of an export: each part of an agent's rows, limited to a user or a session, page by page.

A page is a short transaction of its own, so that an export of any size holds back no checkpoint of the log. Rows are
read in the order of their ids, never of their row numbers, which another installation would assign otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from reverie.clock import from_micros
from reverie.contract import EXTRACT_MEMORIES
from reverie.trust import export_types as types
from reverie.trust.export_types import ExportedRecord
from storage.repository import AgentRepository
from storage.rows import column_name, from_json
from storage.viewer import LOCAL_TENANT

_R = TypeVar("_R", bound=ExportedRecord)


@dataclass(frozen=True, slots=True)
class ExportLimits:
    """What an export of one store is limited to; None is everything. `tenant` is that of rows of the account."""

    user: str | None = None
    session: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """Where the records of a part come from; `key` are the columns that order them, `expressions` SQL for fields."""

    source: str
    alias: str
    key: tuple[str, ...]
    of_user: str
    of_session: str
    expressions: Mapping[str, str] = field(default_factory=dict)


# Of a group, a person's export has the session and what that person said: the rest belongs to others.
_OWN: Final = "(s.user_id = :user AND NOT s.is_group)"
_ALL: Final = ":user IS NULL OR NOT s.is_group"
_OWN_SESSIONS: Final = (
    f"(SELECT s.id FROM sessions AS s WHERE s.agent_id = :agent AND {_OWN} AND (:session IS NULL OR s.id = :session))"
)
_TENANT: Final = f"(:tenant IS NULL OR coalesce(k.tenant, '{LOCAL_TENANT}') = :tenant)"
_OF_MEMORY: Final = f"(k.owner_user_id = :user OR k.owner_user_id IS NULL AND {_OWN})"
_SUCCESSOR_IN_EXPORT: Final = (
    "(:user IS NULL OR b.owner_user_id = :user OR b.owner_user_id IS NULL AND EXISTS (SELECT 1 FROM sessions AS t"
    " WHERE t.row_id = b.session_row AND t.user_id = :user AND NOT t.is_group))"
    " AND (:session IS NULL OR b.session_row = k.session_row)"
)
_PAYLOAD: Final = "CAST(d.payload AS TEXT)"
_CHUNK_KIND: Final = (
    "CASE WHEN c.memory_row IS NOT NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END"
)
_PARTS: Final[Mapping[type[ExportedRecord], _Part]] = {
    types.ExportedChannel: _Part("channels AS c", "c", ("c.id",), "0", "0"),
    types.ExportedSession: _Part(
        "sessions AS s",
        "s",
        ("s.id",),
        "s.user_id = :user OR s.is_group AND EXISTS (SELECT 1 FROM session_users AS u"
        " WHERE u.session_row = s.row_id AND u.user_id = :user)",
        "s.id = :session",
        {
            "user": "coalesce(:user, s.user_id)",
            "users": "CASE WHEN s.is_group AND :user IS NULL THEN (SELECT json_group_array(u.user_id) FROM"
            " (SELECT user_id FROM session_users WHERE session_row = s.row_id ORDER BY user_id) AS u) ELSE '[]' END",
            "summary_text": f"CASE WHEN {_ALL} THEN s.summary_text END",
            "summary_epoch": f"CASE WHEN {_ALL} THEN s.summary_epoch ELSE 0 END",
            "summary_upper_sequence": f"CASE WHEN {_ALL} THEN s.summary_upper_sequence ELSE 0 END",
            "extracted_up_to": "coalesce((SELECT p.position FROM job_progress AS p"
            f" WHERE p.job = '{EXTRACT_MEMORIES}' AND p.item = s.ref_code), 0)",
        },
    ),
    types.ExportedMessage: _Part(
        "sessions AS s CROSS JOIN messages AS m ON m.session_row = s.row_id",
        "m",
        ("s.id", "m.sequence"),
        f"{_OWN} OR m.user_id = :user",
        "s.id = :session",
        {"session": "s.id", "consolidated_at": f"CASE WHEN {_ALL} THEN m.consolidated_at END"},
    ),
    types.ExportedFile: _Part(
        "files AS f LEFT JOIN sessions AS s ON s.row_id = f.session_row",
        "f",
        ("f.id",),
        f"f.user_id = :user OR f.user_id IS NULL AND {_OWN}",
        "s.id = :session",
        {"session": "s.id"},
    ),
    types.ExportedMemory: _Part(
        "memories AS k LEFT JOIN sessions AS s ON s.row_id = k.session_row"
        " LEFT JOIN memories AS b ON b.row_id = k.superseded_by"
        " LEFT JOIN memory_promotions AS p ON p.agent_id = k.agent_id AND p.memory_id = k.id",
        "k",
        ("k.id",),
        _OF_MEMORY,
        "s.id = :session",
        {
            "session": "s.id",
            "superseded_by": "CASE WHEN b.row_id IS NULL THEN NULL"
            f" WHEN {_SUCCESSOR_IN_EXPORT} THEN b.id ELSE k.id END",
            "promoted_at": "p.promoted_at",
            "promotion_score": "p.score",
            "promotion_phase": "p.phase",
        },
    ),
    types.ExportedScratchpadList: _Part(
        "sessions AS s JOIN scratchpad_lists AS l ON l.session_row = s.row_id",
        "l",
        ("s.id",),
        _OWN,
        "s.id = :session",
        {"session": "s.id"},
    ),
    types.ExportedScratchpadKey: _Part(
        "sessions AS s CROSS JOIN scratchpads AS l ON l.session_row = s.row_id",
        "l",
        ("s.id", "l.key"),
        _OWN,
        "s.id = :session",
        {"session": "s.id"},
    ),
    types.ExportedItem: _Part(
        "items AS i",
        "i",
        ("coalesce(i.user_id, '')", "i.namespace", "i.key"),
        "i.user_id = :user OR i.user_id IS NULL"
        " AND EXISTS (SELECT 1 FROM json_each(i.namespace) AS label WHERE label.value = :user)",
        "0",
    ),
    types.ExportedSchedule: _Part(
        "schedules AS d",
        "d",
        ("d.id",),
        f"d.user_id = :user OR (d.user_id IS NULL AND d.session_id IN {_OWN_SESSIONS})",
        "d.session_id = :session",
    ),
    types.ExportedRun: _Part(
        "schedules AS d JOIN schedule_runs AS r ON r.agent_id = d.agent_id AND r.schedule_id = d.id",
        "r",
        ("d.id", "r.id"),
        f"d.user_id = :user OR (d.user_id IS NULL AND d.session_id IN {_OWN_SESSIONS})",
        "d.session_id = :session",
    ),
    types.ExportedReminder: _Part(
        "reminders AS d",
        "d",
        ("d.id",),
        f"d.recipient = :user OR d.user_id = :user OR (d.user_id IS NULL AND d.session_id IN {_OWN_SESSIONS})",
        "d.session_id = :session",
    ),
    types.ExportedNotification: _Part(
        "notifications AS d",
        "d",
        ("d.id",),
        f"d.user_id = :user OR (d.user_id IS NULL AND d.session_id IN {_OWN_SESSIONS})",
        "d.session_id = :session",
    ),
    types.ExportedDeadLetter: _Part(
        "dead_letters AS d",
        "d",
        ("d.stage", "d.item_id"),
        f"(json_valid({_PAYLOAD}) AND {_PAYLOAD} ->> 'user' = :user) OR d.session_id IN {_OWN_SESSIONS}",
        "d.session_id = :session",
    ),
    types.ExportedRecallEvent: _Part(
        "recall_events AS e JOIN chunks AS c ON c.id = e.chunk_id LEFT JOIN files AS f ON f.row_id = c.file_row"
        " LEFT JOIN messages AS m ON m.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)"
        " LEFT JOIN memories AS k ON k.row_id = c.memory_row LEFT JOIN sessions AS s ON s.row_id = c.session_row",
        "e",
        ("e.recall", "e.chunk_id"),
        "e.user_id = :user",
        "s.id = :session",
        {
            "found_kind": _CHUNK_KIND,
            "found": "coalesce(m.id, f.id, k.id)",
            "chunk": "lower(hex(c.content_hash))",
            "in_account": "coalesce(k.tier = 'account', 0)",
        },
    ),
}
# Parts of the account's store; everything else is in workspaces.
ACCOUNT_PARTS: Final[tuple[type[ExportedRecord], ...]] = (types.ExportedMemory, types.ExportedRecallEvent)
_OF_ACCOUNT: Final = frozenset(ACCOUNT_PARTS)


class ExportedRows(AgentRepository):
    """The rows of one agent that exports read, within one transaction."""

    def count(self, kind: type[ExportedRecord], limits: ExportLimits) -> int:
        """Return how many records of a part there are."""
        return int(self._value(f"SELECT count(*) {_from(kind)}", **_parameters(limits)))

    def page(
        self, kind: type[_R], limits: ExportLimits, *, workspace: str, after: Sequence[Any] | None
    ) -> Iterator[tuple[_R, list[Any]]]:
        """Yield the records of a part that follow a key, each with its own key; the caller stops when it has enough."""
        part = _PARTS[kind]
        fields = [name for name in kind.__struct_fields__ if name not in ("workspace", "agent")]
        columns = [f"{part.expressions.get(name, f'{part.alias}.{column_name(name)}')} AS {name}" for name in fields]
        columns += [f"{column} AS key_{number}" for number, column in enumerate(part.key)]
        later, values = "", _parameters(limits)
        if after is not None:
            names = [f"after_{number}" for number in range(len(part.key))]
            later = f" AND ({', '.join(part.key)}) > ({', '.join(':' + name for name in names)})"
            values |= dict(zip(names, after, strict=True))
        sql = f"SELECT {', '.join(columns)} {_from(kind)}{later} ORDER BY {', '.join(part.key)}"
        converters = _converters(kind)
        for row in self._execute(sql, **values):
            read = {
                name: value if value is None or (convert := converters.get(name)) is None else convert(value)
                for name, value in zip(fields, row, strict=False)
            }
            given = {name: value for name, value in read.items() if value is not None}
            yield kind(workspace=workspace, agent=self._agent, **given), list(row[len(fields) :])


def _from(kind: type[ExportedRecord]) -> str:
    part = _PARTS[kind]
    owner = part.source.split(" AS ", 1)[1].split(" ", 1)[0]
    tenant = f" AND {_TENANT}" if kind in _OF_ACCOUNT else ""
    if kind is types.ExportedRecallEvent:
        # A chunk of the store of a workspace has no tenant.
        tenant = f" AND (:tenant IS NULL OR {_TENANT})"
    return (
        f"FROM {part.source} WHERE {owner}.agent_id = :agent AND (:user IS NULL OR {part.of_user})"
        f" AND (:session IS NULL OR {part.of_session}){tenant}"
    )


def _parameters(limits: ExportLimits) -> dict[str, Any]:
    return {"user": limits.user, "session": limits.session, "tenant": limits.tenant}


@cache
def _converters(kind: type[ExportedRecord]) -> dict[str, Callable[[Any], Any]]:
    """Return how stored values become those of a record, where the two differ."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, hint in get_type_hints(kind).items():
        options = set(get_args(hint)) - {type(None)} if get_origin(hint) not in (list, dict) else {hint}
        bare = {get_origin(option) or option for option in options or {hint}}
        if datetime in bare:
            found[name] = from_micros
        elif bare & {list, dict}:
            found[name] = from_json
        elif bool in bare:
            found[name] = bool
    return found
