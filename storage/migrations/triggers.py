"""The triggers of a workspace, which follow from its tables: some count stored rows, others record what jobs change.

A migration only changes the tables. In its transaction, counting triggers that differ afterwards are made anew.

In SQLite, the recording triggers are temporary triggers of the connection that records. SQLite parses the whole schema
of a file each time that one is opened, and these triggers would be half of it: 1.2 of 2.5 ms, in every process for
every workspace, most of which no job ever changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from storage.catalogue import TABLES, Counted
from storage.engines import OPTION, Connection

AMOUNTS: Final = ("messages", "memories", "schedules")
# The key under which a connection notes the schema version of its recording triggers.
_MADE: Final = "recorders_of_schema"


def make_triggers(connection: Connection) -> None:
    """Make the counting triggers that are missing, or whose tables have other columns now."""
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
    present = {row[0]: row[1] for row in connection.exec_driver_sql(query)}
    for name, sql in _counters():
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
    values = {amount: number if amount == counted.amount else "0" for amount in AMOUNTS} | {"bytes": f"{sign}({size})"}
    sums = ", ".join(f"{amount} = {amount} + excluded.{amount}" for amount in values if values[amount] != "0")
    return (
        f"INSERT INTO stored_amounts (tenant, {', '.join(values)})"
        f" VALUES ({counted.tenant.format(row=row)}, {', '.join(values.values())})"
        f" ON CONFLICT (tenant) DO UPDATE SET {sums};"
    )


def make_recorders(connection: Connection) -> None:
    """Create the recording triggers on this connection to a workspace, unless it has them.

    Call it within a transaction that writes. A database server has them in its schema.
    """
    if connection.get_execution_options().get(OPTION) is not None:
        return
    version = connection.exec_driver_sql("PRAGMA main.schema_version").scalar()
    # A rolled back transaction has removed the triggers that it created.
    present = list(connection.exec_driver_sql("SELECT name FROM sqlite_temp_schema WHERE type = 'trigger'").scalars())
    if present and connection.info.get(_MADE) == version:
        return
    for name in present:
        connection.exec_driver_sql(f"DROP TRIGGER temp.{name}")
    for name, definition in recorders(connection):
        connection.exec_driver_sql(f"CREATE TEMP TRIGGER {name} {definition}")
    connection.info[_MADE] = version


def recorders(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield the names of the recording triggers, and the text after the name in `CREATE TRIGGER`.

    They record while `curation_recording` names an entry.
    """
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
                f"AFTER {event}{of} ON {table}"
                " WHEN EXISTS (SELECT 1 FROM curation_recording) BEGIN"
                " INSERT INTO curation_changes (entry_id, table_name, before, after)"
                f" SELECT entry_id, '{table}', {before}, {after} FROM curation_recording; END",
            )


def _image(row: str, columns: str, blobs: Sequence[str]) -> str:
    """Return SQL for a row as JSON, with blobs in hexadecimal, even blobs in columns of text, left by damage."""
    columns_json = [
        f"'{name}', iif(typeof({row}.{name}) = 'blob', hex({row}.{name}), {row}.{name})" for name in columns.split(", ")
    ]
    hexed = [f"'{name}', hex({row}.{name})" for name in blobs]
    return f"json_object({', '.join(columns_json + hexed)})"
