"""Finds the rows that must not be used any more: those that were forgotten, and those that an erasure will remove.

Removing many rows takes minutes. Code that works on rows asks here before it begins, and again before each call by
which their content leaves the process. Marks keep out items that were accepted before an erasure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from storage.catalogue import TABLES
from storage.engines import StoreDatabase
from storage.lifecycle.erased_rows import conditions_in
from storage.lifecycle.erasures import ALL_TIMES, Subject, parts_of
from storage.repository import AgentRepository, Repository
from storage.rows import execute

Table = Literal["chunks", "messages", "files", "memories", "items", "schedules", "reminders", "notifications"]

# Large sessions and files that were forgotten belong to no agent until their rows are removed.
_OF_SESSION: Final = "coalesce(session_row, 0) NOT IN (SELECT row_id FROM sessions WHERE agent_id = '')"
_OF_FILE: Final = "coalesce(file_row, 0) NOT IN (SELECT row_id FROM files WHERE agent_id = '')"
_KEPT: Final[dict[Table, str]] = {
    "chunks": f"{_OF_SESSION} AND {_OF_FILE}",
    "messages": _OF_SESSION,
    "files": f"agent_id <> '' AND {_OF_SESSION}",
    "memories": _OF_SESSION,
}
# Prefixes of marks in the column for session ids, which contain no control characters.
MESSAGE_MARK: Final = "\x1fmessage\x1f"
USER_MARK: Final = "\x1fuser\x1f"
AGENT_MARK: Final = "\x1fagent\x1f"
# The agent of a mark that applies to all agents.
EVERY_AGENT: Final = ""

_UNFINISHED: Final = "SELECT kind, target, agent_id, workspace, cutoff FROM erasures WHERE finished_at IS NULL"


@dataclass(frozen=True, slots=True)
class BeingErased:
    """The subject that an erasure removes from one store; `agent` is None for all agents."""

    agent: str | None
    subject: Subject


def being_erased(account: StoreDatabase, store_name: str, *, is_account: bool) -> list[BeingErased]:
    """Return what unfinished erasures remove from a store, from the moment at which they were asked for."""
    with account.reading() as connection:
        rows = execute(connection, _UNFINISHED).all()
    found = []
    for kind, target, agent, workspace, cutoff in rows:
        # Without a target, the rows of the erasure are gone; only logs and copies are still searched.
        is_over = target is None and kind not in ("agent", "workspace")
        if is_over or not (is_account or workspace in (None, store_name)):
            continue
        before = ALL_TIMES if cutoff is None else int(cutoff)
        for part, named in parts_of(kind, target or ""):
            origin = workspace if is_account and part != "memory" else None
            found.append(BeingErased(agent, Subject.named(part, named, origin, before)))
    return found


class Withdrawn(Repository):
    """The rows of all agents of a store that must not be used any more, within one transaction."""

    def among(self, table: Table, keys: Collection[Any], erasing: Sequence[BeingErased]) -> set[Any]:
        """Return the keys of the given rows that no longer exist, were forgotten, or are being erased."""
        key = TABLES[table].key[-1]
        rows = self._execute(
            f"SELECT {key}, agent_id FROM {table} WHERE {key} IN (SELECT value FROM json_each(:keys))"
            f" AND {_KEPT.get(table, 'true')}",
            keys=list(keys),
        )
        by_agent = defaultdict(list)
        for row in rows:
            by_agent[str(row[1])].append(row[0])
        kept = {one for own in by_agent.values() for one in own}
        for agent, own in by_agent.items():
            subjects = (one.subject for one in erasing if one.agent in (None, agent))
            kept -= self._erased(table, agent, own, subjects)
        return set(keys) - kept

    def _erased(self, table: Table, agent: str, keys: Sequence[Any], subjects: Iterable[Subject]) -> set[Any]:
        key, found = TABLES[table].key[-1], set[Any]()
        for subject in subjects:
            if condition := _condition(table, subject):
                found |= set(
                    self._values(
                        f"SELECT {key} FROM {table} WHERE {key} IN (SELECT value FROM json_each(:keys))"
                        f" AND ({condition})",
                        keys=keys,
                        agent=agent,
                        **subject.parameters(),
                    )
                )
        return found


def _condition(table: Table, subject: Subject) -> str:
    """Return the condition for rows of a table that a subject's erasure removes, or whose source it removes."""
    own = conditions_in(table, subject).get(subject.kind)
    found = [own] if own else []
    if TABLES[table].has_session_row:
        found += _belonging_to("sessions", f"sessions.row_id = {table}.session_row", subject)
    elif TABLES[table].has_session_id and subject.kind == "session":
        found.append("session_id = :id")
    elif TABLES[table].has_session_id:
        found += _belonging_to("sessions", f"sessions.id = {table}.session_id", subject)
    if table == "chunks":
        found += _belonging_to("files", "files.row_id = chunks.file_row", subject)
        found += _belonging_to("memories", "memories.row_id = chunks.memory_row", subject)
        found += _belonging_to(
            "messages",
            "row_id IN (SELECT l.message_row FROM message_chunks AS l WHERE l.chunk_id = chunks.id)",
            subject,
        )
        # A chunk's `lead` is the question before it, which may be another person's message.
        before = _belonging_to("messages", "session_row = chunks.session_row", subject)
        found += [f"lead <> '' AND {one}" for one in before]
    return " OR ".join(f"({one})" for one in found)


def _belonging_to(table: str, join: str, subject: Subject) -> list[str]:
    condition = conditions_in(table, subject).get(subject.kind)
    if condition is None:
        return []
    return [f"EXISTS (SELECT 1 FROM {table} WHERE {table}.agent_id = :agent AND {join} AND ({condition}))"]


class KeptOut(Repository):
    """The marks by which items that were accepted before an erasure are not stored after it."""

    def agents(self) -> list[str]:
        """Return all agents that have rows in the store."""
        tables = [name for name, table in TABLES.items() if table.is_root]
        union = " UNION ".join(f"SELECT agent_id FROM {table}" for table in tables)
        return [str(agent) for agent in self._values(f"SELECT agent_id FROM ({union}) ORDER BY 1") if agent]

    def add(self, subject: Subject, agent: str | None, *, at: int) -> None:
        """Keep out the subject's items that were accepted up to `at`, for one agent or all."""
        keys = {
            "session": subject.id,
            "message": _message_mark(subject.session, subject.id),
            "user": USER_MARK + subject.id,
            "agent": AGENT_MARK,
        }
        if subject.kind in keys:
            self._keep_out(keys[subject.kind], at, agent=agent or EVERY_AGENT)

    def any(self) -> bool:
        """Return whether there is any mark."""
        return self._value("SELECT 1 FROM forgotten_sessions LIMIT 1") is not None

    def drop(self, *, up_to: int) -> int:
        """Drop the marks up to a number and return how many: all items accepted before are settled."""
        return self._execute("DELETE FROM forgotten_sessions WHERE forgotten_at <= :at", at=up_to).rowcount


class Marks(AgentRepository):
    """The marks of one agent, as ingest looks them up."""

    def forgotten_at(self, *, user: str | None = None) -> int:
        """Return the number up to which items of the agent, or of one of its users, are kept out; 0 without a mark."""
        keys = [AGENT_MARK, *([USER_MARK + user] if user else [])]
        sql = (
            "SELECT max(forgotten_at) FROM forgotten_sessions WHERE agent_id IN (:agent, '')"
            " AND session_id IN (SELECT value FROM json_each(:keys))"
        )
        return int(self._value(sql, keys=keys) or 0)

    def messages_forgotten_at(self, session: str, ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers up to which deliveries of these messages of a session are kept out, by message."""
        sql = (
            "SELECT session_id, max(forgotten_at) FROM forgotten_sessions WHERE agent_id IN (:agent, '')"
            " AND session_id IN (SELECT value FROM json_each(:keys)) GROUP BY session_id"
        )
        rows = self._execute(sql, keys=[_message_mark(session, message_id) for message_id in ids])
        return {str(row[0]).removeprefix(_message_mark(session, "")): int(row[1]) for row in rows}


def _message_mark(session: str, message_id: str) -> str:
    return f"{MESSAGE_MARK}{session}\x1f{message_id}"
