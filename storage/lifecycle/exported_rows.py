"""Read the rows of an export: each part of an agent's rows, limited to a user or a session, page by page.

Each page is a short transaction, so that even a large export does not delay checkpoints of the log. Rows are read in
the order of their ids, never of their row numbers, which another installation would assign otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from reverie.clock import from_micros
from reverie.errors import StoreUnusable
from reverie.trust.exports import PARTS, ExportedMemory, ExportedRecord, ExportedRun, ExportedSchedule, tag_of
from storage.catalogue import OWN, TABLES, listed, of_owner
from storage.repository import AgentRepository
from storage.rows import DamagedRow, DamagedText, column_name, damaged_row, from_json
from storage.viewer import LOCAL_TENANT

_R = TypeVar("_R", bound=ExportedRecord)


@dataclass(frozen=True, slots=True)
class ExportLimits:
    """The limits of an export of one store; None does not limit. `tenant` selects rows of the account."""

    user: str | None = None
    session: str | None = None
    tenant: str | None = None


# The exported tables, by the name of their part.
EXPORTED: Final = {
    table.exported.part: (name, table, table.exported) for name, table in TABLES.items() if table.exported is not None
}
ACCOUNT_PARTS: Final = tuple(part for part in PARTS if EXPORTED[part][2].in_account)
_TENANTS: Final = {
    "memories": f"(:tenant IS NULL OR coalesce(t.tenant, '{LOCAL_TENANT}') = :tenant)",
    # Chunks in a workspace's store have no tenant.
    "recall_events": f"(:tenant IS NULL OR coalesce(k.tenant, '{LOCAL_TENANT}') = :tenant)",
}


class ExportedRows(AgentRepository):
    """The rows of one agent that exports read, within one transaction."""

    def count(self, kind: type[ExportedRecord], limits: ExportLimits) -> int:
        """Return how many records of a part there are."""
        return int(self._value(f"SELECT count(*) {_from(kind)}", **_parameters(limits)))

    def page(
        self, kind: type[_R], limits: ExportLimits, *, workspace: str, after: Sequence[Any] | None
    ) -> Iterator[tuple[_R, list[Any]]]:
        """Yield the records of a part that follow a key, each with its own key; the caller stops when it has enough."""
        _, _, exported = EXPORTED[tag_of(kind)]
        later, values = "", _parameters(limits)
        if after is not None:
            names = [f"after_{number}" for number in range(len(exported.order))]
            later = f" AND ({', '.join(exported.order)}) > ({', '.join(':' + name for name in names)})"
            values |= dict(zip(names, after, strict=True))
        yield from self._read(kind, later, values, workspace)

    def memories(self, ids: Sequence[str], *, workspace: str) -> list[ExportedMemory]:
        """Return the records of these memories."""
        values = _parameters(ExportLimits()) | {"ids": ids}
        return [record for record, _ in self._read(ExportedMemory, f" AND t.id IN {listed('ids')}", values, workspace)]

    def schedule(self, id: str, *, workspace: str) -> tuple[list[ExportedSchedule], list[ExportedRun]]:
        """Return the record of a schedule, and the records of its runs, newest first."""
        values = _parameters(ExportLimits()) | {"id": id}
        schedules = [record for record, _ in self._read(ExportedSchedule, " AND t.id = :id", values, workspace)]
        runs = [record for record, _ in self._read(ExportedRun, " AND d.id = :id", values, workspace)]
        return schedules, runs[::-1]

    def _read(
        self, kind: type[_R], condition: str, values: Mapping[str, Any], workspace: str
    ) -> Iterator[tuple[_R, list[Any]]]:
        _, table, exported = EXPORTED[tag_of(kind)]
        fields = [name for name in kind.__struct_fields__ if name not in ("workspace", "agent")]
        expressions = {"session": "s.id"} if table.has_session_row else {}
        expressions |= exported.expressions
        columns = [f"{expressions.get(name, f't.{column_name(name)}')} AS {name}" for name in fields]
        columns += [f"{column} AS key_{number}" for number, column in enumerate(exported.order)]
        sql = f"SELECT {', '.join(columns)} {_from(kind)}{condition} ORDER BY {', '.join(exported.order)}"
        converters = _converters(kind)
        for row in self._execute(sql, **values):
            try:
                read = {
                    name: value if (convert := converters.get(name)) is None else convert(value)
                    for name, value in zip(fields, row, strict=False)
                    if value is not None
                }
                record = _record(kind, {"workspace": workspace, "agent": self._agent, **read})
            except (DamagedRow, StoreUnusable):
                continue
            yield record, list(row[len(fields) :])


def _record(kind: type[_R], read: dict[str, Any]) -> _R:
    """Return a record. Raises `DamagedRow` if a value does not have the type of its field."""
    if any(isinstance(value, DamagedText) for value in read.values()):
        raise damaged_row("text")
    try:
        return msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        raise damaged_row("the type of a value") from error


def _from(kind: type[ExportedRecord]) -> str:
    """Return the FROM and WHERE of the rows of a part."""
    name, table, exported = EXPORTED[tag_of(kind)]
    by_row, user = table.has_session_row, table.users[0] if table.users else ""
    joined = f"{name} AS t LEFT JOIN sessions AS s ON s.row_id = t.session_row" if by_row else f"{name} AS t"
    source = exported.source or joined
    owner = source.split(" AS ", 1)[1].split(" ", 1)[0]
    if by_row:
        of_user, of_session = (f"t.{user} = :user OR t.{user} IS NULL AND {OWN}" if user else OWN), "s.id = :session"
    else:
        of_user, of_session = of_owner("t"), "t.session_id = :session" if table.has_session_id else "0"
    tenant = f" AND {_TENANTS[name]}" if exported.in_account else ""
    return (
        f"FROM {source} WHERE {owner}.agent_id = :agent AND (:user IS NULL OR {exported.of_user or of_user})"
        f" AND (:session IS NULL OR {exported.of_session or of_session}){tenant}"
    )


def _parameters(limits: ExportLimits) -> dict[str, Any]:
    return {"user": limits.user, "session": limits.session, "tenant": limits.tenant}


@cache
def _converters(kind: type[ExportedRecord]) -> dict[str, Callable[[Any], Any]]:
    """Return the conversions for fields whose stored values differ from those of a record."""
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
