"""The triggers of a workspace that follow from its tables: they count what is stored, and record what jobs change.

A migration says only what changes in the tables; in its transaction the triggers are made anew where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection

from storage.catalogue import TABLES, Counted

_AMOUNTS: Final = ("messages", "memories", "schedules")


def make_triggers(connection: Connection) -> None:
    """Make the triggers that are missing, and those again whose table has other columns now."""
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
    present = {row[0]: row[1] for row in connection.exec_driver_sql(query)}
    for name, sql in (*_counters(), *_recorders(connection)):
        if present.get(name) != sql:
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
            connection.exec_driver_sql(sql)


def _counters() -> Iterator[tuple[str, str]]:
    """Yield the names and the SQL of the triggers that count the rows of tables."""
    for table, counted in ((name, entry.counted) for name, entry in TABLES.items() if entry.counted is not None):
        added, removed = _change(counted, "new", "+"), _change(counted, "old", "-")
        changed = f"UPDATE OF {', '.join(counted.columns + counted.watched)}"
        for event, body in (("INSERT", added), ("DELETE", removed), (changed, f"{removed} {added}")):
            name = f"{table}_{event.partition(' ')[0].lower()}_counted"
            yield name, f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {body} END"


def _change(counted: Counted, row: str, sign: str) -> str:
    """Return a statement that adds a row to the counts, or takes it away."""
    size = " + ".join(f"coalesce(octet_length({row}.{column}), 0)" for column in counted.columns)
    number = f"{sign}({counted.condition.format(row=row)})"
    values = {amount: number if amount == counted.amount else "0" for amount in _AMOUNTS} | {"bytes": f"{sign}({size})"}
    sums = ", ".join(f"{amount} = {amount} + excluded.{amount}" for amount in values if values[amount] != "0")
    return (
        f"INSERT INTO stored_amounts (tenant, {', '.join(values)})"
        f" VALUES ({counted.tenant.format(row=row)}, {', '.join(values.values())})"
        f" ON CONFLICT (tenant) DO UPDATE SET {sums};"
    )


def _recorders(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield the names and the SQL of the triggers that record changes while `curation_recording` names an entry."""
    for table, recorded in ((name, entry.recorded) for name, entry in TABLES.items() if entry.recorded is not None):
        query = f"SELECT name FROM pragma_table_info('{table}')"
        columns = recorded.columns or ", ".join(connection.exec_driver_sql(query).scalars())
        for event in recorded.events:
            name = f"{table}_{event.lower()}_recorded"
            before = "NULL" if event == "INSERT" else _image("old", columns, recorded.blobs)
            after = "NULL" if event == "DELETE" else _image("new", columns, recorded.blobs)
            of = f" OF {recorded.of}" if recorded.of else ""
            yield (
                name,
                f"CREATE TRIGGER {name} AFTER {event}{of} ON {table}"
                " WHEN EXISTS (SELECT 1 FROM curation_recording) BEGIN"
                " INSERT INTO curation_changes (entry_id, table_name, before, after)"
                f" SELECT entry_id, '{table}', {before}, {after} FROM curation_recording; END",
            )


def _image(row: str, columns: str, blobs: Sequence[str]) -> str:
    """Return SQL that represents a row as JSON, with blobs in hexadecimal, also those that damage has left."""
    columns_json = [
        f"'{name}', iif(typeof({row}.{name}) = 'blob', hex({row}.{name}), {row}.{name})" for name in columns.split(", ")
    ]
    hexed = [f"'{name}', hex({row}.{name})" for name in blobs]
    return f"json_object({', '.join(columns_json + hexed)})"
