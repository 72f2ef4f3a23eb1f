"""The audit log, in the account's database: who did what to which id, from where, with which outcome.

It has no content. The database refuses changes of its entries; only retention removes old ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reverie.trust.calls import AuditRecord
from storage.repository import AccountRepository
from storage.rows import execute, insert_sql, select_list, to_parameters

_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry to write. `actor` is the name of the principal and `token` the id of its token, empty for the operator.

    `target` is the id of what was acted on, `origin` the address of the caller, and `count` how many equal events the
    entry stands for. Times are microseconds.
    """

    at: int
    actor: str
    action: str
    target: str = ""
    token: str = ""
    workspace: str = ""
    agent: str = ""
    outcome: str = "done"
    origin: str = ""
    trace: str = ""
    count: int = 1


class AuditFilter(NamedTuple):
    """Which entries to list; None for any. `since` is in microseconds.

    `actors` and `targets` have all forms that a name may have in the log.
    """

    since: int | None = None
    actors: Sequence[str] | None = None
    action: str | None = None
    workspace: str | None = None
    targets: Sequence[str] | None = None


class AuditLog(AccountRepository):
    """The audit log. Each method is a transaction of its own."""

    def record(self, *entries: AuditEntry) -> None:
        """Append entries. Raises `StoreUnavailable` if they cannot be written."""
        with self._account.atomic() as connection:
            for entry in entries:
                execute(connection, _INSERT, **to_parameters(entry))

    def entries(self, wanted: AuditFilter, *, limit: int, offset: int = 0) -> list[AuditRecord]:
        """Return a page of the entries that match, newest first."""
        given = {name: value for name, value in wanted._asdict().items() if value is not None}
        conditions = [_CONDITIONS[name] for name in given]
        sql = f"{_SELECT} WHERE {' AND '.join(conditions or ['true'])} ORDER BY id DESC LIMIT :limit OFFSET :offset"
        return self._records(AuditRecord, sql, **given, limit=limit, offset=offset)

    def remove_before(self, at: int) -> int:
        """Remove entries older than `at` (microseconds), at most a thousand, and return their number."""
        with self._account.atomic() as connection:
            execute(connection, "UPDATE audit_retention SET ended_at = :at", at=at)
            removed = execute(connection, _REMOVE, at=at, limit=_BATCH).rowcount
            execute(connection, "UPDATE audit_retention SET ended_at = NULL")
            return removed


_INSERT: Final = insert_sql("audit_log", AuditEntry)
_SELECT: Final = f"SELECT {select_list(AuditRecord)} FROM audit_log"
_CONDITIONS: Final = {
    "since": "at >= :since",
    "actors": "actor IN (SELECT value FROM json_each(:actors))",
    "action": "action = :action",
    "workspace": "workspace = :workspace",
    "targets": "target IN (SELECT value FROM json_each(:targets))",
}
_REMOVE: Final = "DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE at < :at ORDER BY id LIMIT :limit)"
