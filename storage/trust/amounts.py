"""How much a store holds: numbers that triggers keep in the transaction of each change (migrations 0008 and 0015)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection

from reverie.calls import Resource
from storage.rows import execute

RESOURCES: Final[tuple[Resource, ...]] = ("messages", "bytes", "memories", "schedules")
_SELECT: Final = f"SELECT {', '.join(RESOURCES)} FROM stored_amounts WHERE tenant = :tenant"
# The tables whose rows count, apart from their bytes.
COUNTED_TABLES: Final = ("messages", "files", "memories", "schedules", "reminders")
# What the numbers must be: the rows themselves, as migrations 0008 and 0015 count them.
_ROWS: Final = """
    SELECT '' AS tenant, 1 AS messages, 0 AS memories, 0 AS schedules,
        octet_length(content) + octet_length(metadata) + coalesce(octet_length(tool_calls), 0)
        + coalesce(octet_length(original), 0) AS bytes FROM messages
    UNION ALL SELECT '', 1, 0, 0, octet_length(content) + octet_length(metadata) FROM files
    UNION ALL SELECT coalesce(tenant, ''), 0, superseded_by IS NULL, 0,
        octet_length(content) + coalesce(octet_length(value), 0) + octet_length(metadata) FROM memories
    UNION ALL SELECT '', 0, 0, 0, octet_length(key) + octet_length(value) FROM scratchpads
    UNION ALL SELECT '', 0, 0, 0, octet_length(items) FROM scratchpad_lists
    UNION ALL SELECT '', 0, 0, 0, octet_length(namespace) + octet_length(key) + octet_length(value) FROM items
    UNION ALL SELECT '', 0, 0, 1, octet_length(goal) + octet_length(cadence) + octet_length(executor) FROM schedules
    UNION ALL SELECT '', 0, 0, delivered_at IS NULL, octet_length(message) FROM reminders
"""
_COLUMNS: Final = "tenant, messages, memories, schedules, bytes"
_WRONG: Final = f"""
    WITH counted AS (SELECT {_COLUMNS} FROM stored_amounts WHERE messages OR memories OR schedules OR bytes),
        actual AS (SELECT tenant, sum(messages) AS messages, sum(memories) AS memories, sum(schedules) AS schedules,
            sum(bytes) AS bytes FROM ({_ROWS}) GROUP BY tenant)
    SELECT count(*) FROM (SELECT * FROM (SELECT {_COLUMNS} FROM counted EXCEPT SELECT {_COLUMNS} FROM actual)
        UNION SELECT * FROM (SELECT {_COLUMNS} FROM actual EXCEPT SELECT {_COLUMNS} FROM counted))
"""


def nothing_stored() -> Mapping[Resource, int]:
    """Return the numbers of a store that does not exist."""
    return dict.fromkeys(RESOURCES, 0)


def stored_amounts(connection: Connection, tenant: str = "") -> Mapping[Resource, int]:
    """Return how much a store holds; in the account's store, how much of a tenant, empty for the local one."""
    row = execute(connection, _SELECT, tenant=tenant).one_or_none()
    return nothing_stored() if row is None else dict(zip(RESOURCES, row, strict=True))


def wrong_amounts(connection: Connection) -> int:
    """Return how many of the counts of a store differ from its rows."""
    return int(execute(connection, _WRONG).scalar_one())


def stored_ids(connection: Connection, table: str, agent: str, ids: Collection[str]) -> set[str]:
    """Return which of these ids an agent has in one of `COUNTED_TABLES`."""
    sql = f"SELECT id FROM {table} WHERE agent_id = :agent AND id IN (SELECT value FROM json_each(:ids))"
    return set(execute(connection, sql, agent=agent, ids=ids).scalars())


def stored_amounts_of(raw: Any) -> Mapping[Resource, int]:
    """Return how much a workspace holds, by a connection of the driver."""
    row = raw.execute(_SELECT, {"tenant": ""}).fetchone()
    return nothing_stored() if row is None else dict(zip(RESOURCES, row, strict=True))
