"""`reverie db apply-tombstones`: erase from a restored PostgreSQL database what was erased since its dump."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from cli.application import invocation
from cli.output import AsJson, Yes, confirm, note, print_json, say
from cli.upkeep.database import database
from memory.trust.restored import apply_tombstones
from memory.trust.tombstones import SharedTombstones, read_tombstones
from reverie.clock import now_micros
from reverie.errors import Conflict, Rejected
from storage.trust.audit import AuditEntry, AuditLog

if TYPE_CHECKING:
    from storage.trust.hosts import Hosts

# A host whose processes run is heard of every two seconds.
_SILENT_SECONDS: Final = 60.0


@database.command("apply-tombstones")
def apply(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> None:
    """Erase again what an older dump of the PostgreSQL database has brought back.

    Run it on a host that Reverie ran on before, once the dump is restored and before Reverie is started anywhere: the
    tombstones of what was erased lie in the data folder of each host.
    """
    runtime = invocation(context).existing_runtime
    hosts = runtime.stores.hosts()
    if hosts is None:
        raise Rejected("the stores are files: `reverie restore` applies tombstones by itself", field="database")
    _require_silence(hosts)
    confirm("Erase from the database what the tombstones of this data folder name?", yes)
    SharedTombstones(runtime.settings.data, hosts).exchange()
    if not any(read_tombstones(runtime.settings.data)):
        note(
            f"reverie: {runtime.settings.data} has no tombstones: nothing was erased yet, or Reverie never ran on this"
            " database with this folder"
        )
    removed = apply_tombstones(runtime.stores, now=now_micros())
    entry = AuditEntry(at=now_micros(), actor="operator", action="db.apply-tombstones", target="")
    AuditLog(runtime.stores.account()).record(entry)
    if as_json:
        print_json({"removed": removed})
    elif removed:
        rows = (f"{table} ({count:,})" for table, count in sorted(removed.items()))
        say(f"Erased again, rows by table: {', '.join(rows)}.")
    else:
        say("Nothing had come back.")


def _require_silence(hosts: Hosts) -> None:
    """Raise `Conflict` if Reverie runs on a host: it would go on using what is being erased."""
    running = [host.name for host in hosts.all() if host.silent_seconds < _SILENT_SECONDS]
    if running:
        raise Conflict(
            f"Reverie runs on {', '.join(running)}, or did a minute ago: stop it on all hosts, and try again",
            field="data",
        )
