"""The hosts of a PostgreSQL database, in tables that belong to no store. All times are by the server's clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from storage.postgres.engine import PostgresServer
from storage.trust.hosts import HostRecord, HostReport

# The number of the advisory lock for adding tombstones.
_TOMBSTONES_LOCK: Final = 0x5245_5453
_WAITS: Final = (
    "e.step = 'hosts' AND e.finished_at IS NULL AND NOT EXISTS ("
    "SELECT 1 FROM host_erasures AS r WHERE r.erasure_id = e.id AND r.host_id = {host})"
)
_HOSTS: Final = (
    "SELECT h.id, h.name, (extract(epoch FROM h.joined_at) * 1000000)::bigint,"
    " extract(epoch FROM clock_timestamp() - h.seen_at)::double precision,"
    f" (SELECT count(*) FROM erasures AS e WHERE {_WAITS.format(host='h.id')}), h.error"
    " FROM hosts AS h"
)
_NOTE_MISSED_ERASURES: Final = (
    "INSERT INTO host_erasures (erasure_id, host_id, name, done)"
    " SELECT e.id, h.id, h.name, false FROM erasures AS e, hosts AS h"
    " WHERE e.finished_at IS NULL AND {condition} ON CONFLICT DO NOTHING"
)


class Hosts:
    """The hosts of one database. Each method is a transaction of its own; all raise `StoreUnavailable`."""

    def __init__(self, server: PostgresServer, installation: Callable[[], str]) -> None:
        self._server = server
        self.installation = installation

    def share_key(self, proposed: bytes) -> bytes:
        """Return the key that all hosts share: the first key that a host proposed."""
        return self._share("erasure_key", proposed)

    def share_installation_key(self, proposed: bytes) -> bytes:
        """Return the key from which all hosts derive secrets: the first key that a host proposed."""
        return self._share("installation_key", proposed)

    def add_tombstones(self, contents: Sequence[str]) -> None:
        """Add tombstones for all hosts. Only one host adds at a time, so that readers up to a number miss none."""
        with self._server.writing() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TOMBSTONES_LOCK})")
            sql = "INSERT INTO tombstones (content) SELECT unnest(%(contents)s::text[]) ON CONFLICT DO NOTHING"
            connection.exec_driver_sql(sql, {"contents": list(contents)})

    def tombstones(self, *, after: int) -> list[tuple[int, str]]:
        """Return the tombstones with higher numbers than this."""
        sql = "SELECT number, content FROM tombstones WHERE number > %(after)s ORDER BY number"
        with self._server.writing() as connection:
            return [(int(row[0]), str(row[1])) for row in connection.exec_driver_sql(sql, {"after": after})]

    def join(self, host_id: str, name: str) -> bool:
        """Add a host, or note that it was heard of; return whether it had joined already."""
        with self._server.writing() as connection:
            sql = "UPDATE hosts SET name = %(name)s, seen_at = clock_timestamp() WHERE id = %(id)s"
            if connection.exec_driver_sql(sql, {"id": host_id, "name": name}).rowcount:
                return True
            sql = "INSERT INTO hosts (id, name) VALUES (%(id)s, %(name)s) ON CONFLICT DO NOTHING"
            connection.exec_driver_sql(sql, {"id": host_id, "name": name})
        return False

    def see(self, host_id: str) -> bool:
        """Note that a host was heard of; return whether it is still one of the hosts."""
        with self._server.writing() as connection:
            sql = "UPDATE hosts SET seen_at = clock_timestamp() WHERE id = %(id)s"
            return bool(connection.exec_driver_sql(sql, {"id": host_id}).rowcount)

    def set_error(self, host_id: str, error: str) -> None:
        """Note why a host cannot carry out its duties. An empty text means that it can."""
        with self._server.writing() as connection:
            sql = "UPDATE hosts SET error = %(error)s WHERE id = %(id)s"
            connection.exec_driver_sql(sql, {"id": host_id, "error": error})

    def all(self) -> list[HostRecord]:
        """Return all hosts by name."""
        with self._server.writing() as connection:
            return _hosts(connection, f"{_HOSTS} ORDER BY h.name, h.id")

    def forget(self, host_id: str) -> bool:
        """Remove a host, so that no erasure waits for it any more; return whether there was one."""
        return bool(self._remove("h.id = %(id)s", {"id": host_id}))

    def forget_unseen(self, days: float) -> list[HostRecord]:
        """Remove the hosts that were not heard of for so long, as `forget` does; return them."""
        return self._remove(
            "h.seen_at < clock_timestamp() - make_interval(secs => %(seconds)s)", {"seconds": days * 86_400}
        )

    def erasures_to_do(self, host_id: str) -> list[str]:
        """Return the ids of the erasures that wait for a host, the oldest first."""
        sql = f"SELECT e.id FROM erasures AS e WHERE {_WAITS.format(host='%(id)s')} ORDER BY e.requested_at, e.id"
        with self._server.writing() as connection:
            return [str(one) for one in connection.exec_driver_sql(sql, {"id": host_id}).scalars()]

    def report(self, erasure_id: str, report: HostReport) -> None:
        """Store a host's report on an erasure, in place of an earlier one."""
        columns = ("done", "files", "bytes", "histories", "lines", "leftovers")
        sql = (
            f"INSERT INTO host_erasures (erasure_id, host_id, name, {', '.join(columns)})"
            " VALUES (%(erasure)s, %(host)s, %(name)s, %(done)s, %(files)s, %(bytes)s, %(histories)s, %(lines)s,"
            " %(leftovers)s::jsonb) ON CONFLICT (erasure_id, host_id) DO UPDATE SET "
            + ", ".join(f"{column} = excluded.{column}" for column in columns)
        )
        values = {
            "erasure": erasure_id,
            "host": report.host,
            "name": report.name,
            "done": report.done,
            "files": report.files,
            "bytes": report.bytes,
            "histories": report.histories,
            "lines": report.lines,
            "leftovers": json.dumps(dict(report.leftovers)),
        }
        with self._server.writing() as connection:
            connection.exec_driver_sql(sql, values)

    def waited_for(self, erasure_id: str) -> list[HostRecord]:
        """Return the hosts that have not reported on an erasure."""
        sql = (
            f"{_HOSTS} WHERE NOT EXISTS (SELECT 1 FROM host_erasures AS r WHERE r.erasure_id = %(erasure)s"
            " AND r.host_id = h.id) ORDER BY h.name, h.id"
        )
        with self._server.writing() as connection:
            return _hosts(connection, sql, {"erasure": erasure_id})

    def reports(self, erasure_id: str) -> Sequence[HostReport]:
        """Return the reports on an erasure by the names of the hosts."""
        sql = (
            "SELECT host_id, name, done, files, bytes, histories, lines, leftovers FROM host_erasures"
            " WHERE erasure_id = %(erasure)s ORDER BY name, host_id"
        )
        with self._server.writing() as connection:
            return [HostReport(*row) for row in connection.exec_driver_sql(sql, {"erasure": erasure_id})]

    def drop_reports(self, erasure_id: str) -> None:
        """Delete the reports on an erasure, which are in its receipt."""
        with self._server.writing() as connection:
            sql = "DELETE FROM host_erasures WHERE erasure_id = %(erasure)s"
            connection.exec_driver_sql(sql, {"erasure": erasure_id})

    def _share(self, table: str, proposed: bytes) -> bytes:
        """Return the only key in a table; the proposed key is stored if there was none."""
        with self._server.writing() as connection:
            present = connection.exec_driver_sql(f"SELECT key FROM {table}").scalar()
            if present is None:
                sql = f"INSERT INTO {table} (only_row, key) VALUES (1, %(key)s) ON CONFLICT DO NOTHING"
                connection.exec_driver_sql(sql, {"key": proposed})
                present = connection.exec_driver_sql(f"SELECT key FROM {table}").scalar_one()
        return bytes(present)

    def _remove(self, condition: str, values: Mapping[str, Any]) -> list[HostRecord]:
        """Remove hosts, and note for each erasure in progress that these hosts have not carried it out."""
        with self._server.writing() as connection:
            found = _hosts(connection, f"{_HOSTS} WHERE {condition} FOR UPDATE OF h", values)
            if found:
                ids = {"ids": [host.id for host in found]}
                connection.exec_driver_sql(_NOTE_MISSED_ERASURES.format(condition="h.id = ANY(%(ids)s)"), ids)
                connection.exec_driver_sql("DELETE FROM hosts WHERE id = ANY(%(ids)s)", ids)
        return found


def _hosts(connection: Connection, sql: str, values: Mapping[str, Any] | None = None) -> list[HostRecord]:
    return [HostRecord(*row) for row in connection.exec_driver_sql(sql, dict(values or {}))]
