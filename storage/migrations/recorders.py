"""The triggers by which the curation log records what jobs change.

While a row of `curation_recording` names an entry of the log, they write what changes into it: the whole row before and
after, or only some columns of a table that jobs change in part.
"""

from __future__ import annotations

from sqlalchemy import Connection

_EVENTS = ("INSERT", "UPDATE", "DELETE")
# The tables of whose rows an undo restores every column.
_RECORDED_IN_FULL = ("memories", "memory_promotions")


def recorder(table: str, event: str, columns: str, *, blobs: str = "", of: str = "") -> str:
    """Return the SQL of a trigger that records one kind of change of a table.

    `columns`, `blobs` and `of` are lists separated by ", ". `blobs` are recorded in hexadecimal; an UPDATE is recorded
    if it names one of `of`, or always.
    """
    before = "NULL" if event == "INSERT" else _image("old", columns, blobs=blobs)
    after = "NULL" if event == "DELETE" else _image("new", columns, blobs=blobs)
    return (
        f"CREATE TRIGGER {table}_{event.lower()}_recorded AFTER {event}{' OF ' + of if of else ''} ON {table}"
        " WHEN EXISTS (SELECT 1 FROM curation_recording) BEGIN"
        " INSERT INTO curation_changes (entry_id, table_name, before, after)"
        f" SELECT entry_id, '{table}', {before}, {after} FROM curation_recording; END"
    )


def record_added_columns(connection: Connection) -> None:
    """Have the recorders of `memories` and `memory_promotions` record all columns, those just added too."""
    for table in _RECORDED_IN_FULL:
        columns = ", ".join(connection.exec_driver_sql(f"SELECT name FROM pragma_table_info('{table}')").scalars())
        for event in _EVENTS:
            name = f"{table}_{event.lower()}_recorded"
            query = f"SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = '{name}'"
            present = connection.exec_driver_sql(query).scalar()
            wanted = recorder(table, event, columns)
            if present is not None and present != wanted:
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
                connection.exec_driver_sql(wanted)


def _image(row: str, columns: str, *, blobs: str = "") -> str:
    """Return SQL that represents a row as JSON."""
    columns_json = [f"'{name}', {row}.{name}" for name in columns.split(", ")]
    hexed = [f"'{name}', hex({row}.{name})" for name in blobs.split(", ") if name]
    return f"json_object({', '.join(columns_json + hexed)})"
