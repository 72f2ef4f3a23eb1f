"""`reverie restore`: make a data folder of a backup."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.application import application, invocation
from cli.output import AsJson, note, print_json, progress_bar, say, size
from cli.upkeep.backup_secrets import KeyFile, NewSecret, read_secret
from cli.upkeep.backups import BackupId, Dest, chosen
from reverie.counts import counted
from reverie.errors import Conflict, NotFound, Rejected
from worker.data_folder import default_data_folder

if TYPE_CHECKING:
    from adapters.backups.manifest import Manifest
    from adapters.backups.repository import Repository
    from memory.upkeep.restore import RestoreReport

_MICROS: Final = 1_000_000


@application.command("restore")
def restore(
    context: typer.Context,
    dest: Dest,
    backup_id: BackupId = None,
    at: Annotated[
        str | None, typer.Option(help="Restore the newest backup begun at or before this time (ISO 8601, UTC).")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a data folder that is not empty; the old one is kept beside it.")
    ] = False,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Restore a backup in which a store is missing.")
    ] = False,
    keep_endpoints: Annotated[
        bool,
        typer.Option("--keep-endpoints", help="Leave schedules active that call webhooks, and addresses of models."),
    ] = False,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup to the data folder, which must not be in use. Nothing is changed unless all of it verifies."""
    from adapters.backups.repository import locked, open_repository, read_header
    from memory.upkeep import restore as restoring
    from reverie.clock import now_micros

    command = invocation(context)
    command.starts_stack = True  # never the folder of a Reverie that runs elsewhere
    target = (command.target.data or default_data_folder()).resolve()
    if backup_id is not None and at is not None:
        raise Rejected("give --id or --at", field="at")
    if read_header(dest) is None:
        raise NotFound(f"{dest} contains no backups of Reverie", field="dest")
    if dest.resolve().is_relative_to(target):
        raise Rejected(f"{dest} lies in the data folder to be replaced: move the backups first", field="dest")
    secret = read_secret(dest, key_file, NewSecret.NONE)
    with locked(dest, shared=True), ExitStack() as holding, progress_bar("restore") as bar:
        repository = open_repository(dest, secret)
        manifest = _select(repository, backup_id, at)
        if not incomplete:
            _require_complete(manifest)
        if target.exists() and any(target.iterdir()) and replace:
            _hold(target, holding)
        task = bar.add_task("", total=manifest.total_bytes)
        report = restoring.restore(
            repository,
            manifest,
            target,
            restoring.RestoreOptions(
                now=now_micros,
                replace=replace,
                keep_endpoints=keep_endpoints,
                newest=_newest(repository),
                on_file=lambda done, _total: bar.update(task, completed=done),
            ),
        )
    _audit(target, report)
    if as_json:
        print_json(report)
    else:
        _show(report)


def _require_complete(manifest: Manifest) -> None:
    """Raise `Conflict` for a backup in which a store is missing."""
    if manifest.failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in manifest.failed.items())
        raise Conflict(
            f"backup {manifest.id} is incomplete ({reasons}): name an earlier one with --id, or use --incomplete",
            field="id",
        )


def _select(repository: Repository, backup_id: str | None, at: str | None) -> Manifest:
    if at is None:
        return chosen(repository, backup_id)
    from adapters.backups.repository import newest_at

    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        raise Rejected(f"--at {at!r} is no time: give one such as 2026-05-03T12:00:00", field="at") from None
    return newest_at(repository.manifests()[0], moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _newest(repository: Repository) -> Manifest | None:
    """Return the newest backup that can be read, for its tombstones."""
    found = repository.manifests()[0]
    return found[-1] if found else None


def _hold(target: Path, holding: ExitStack) -> None:
    """Keep a Reverie from starting on the folder to be replaced. Raises `Conflict` if a process uses it."""
    from worker.supervision.processes import users_of
    from worker.supervision.run_file import hold_data_dir
    from worker.supervision.server_file import running_server

    holding.enter_context(hold_data_dir(target))
    server = running_server(target)
    users = users_of(target)
    if server is not None or users:
        who = f"the server at {server.url}" if server is not None else f"process {users[0]}"
        raise Conflict(f"{target} is in use by {who}: stop Reverie first", field="data")


def _audit(target: Path, report: RestoreReport) -> None:
    from reverie.clock import now_micros
    from storage.stores import Stores
    from storage.trust.audit import AuditEntry, AuditLog

    stores = Stores(target)
    try:
        entry = AuditEntry(at=now_micros(), actor="operator", action="restore", target=report.backup)
        AuditLog(stores.account()).record(entry)
    finally:
        stores.close()


def _show(report: RestoreReport) -> None:
    messages = sum(counts.get("messages", 0) for counts in report.stores.values())
    say(
        f"Backup {report.backup} restored to {report.data}: {counted(len(report.stores), 'store')} with"
        f" {counted(messages, 'message')}, {size(report.bytes)}."
    )
    if report.stored_from_queue:
        say(f"{counted(report.stored_from_queue, 'message')} that were queued at that time are stored now.")
    if report.tombstones:
        say(f"{counted(report.tombstones, 'erasure')} applied again.")
    if report.webhooks_paused:
        note(
            f"reverie: {counted(report.webhooks_paused, 'schedule')} that call webhooks are paused, in case this is a"
            " copy: see `reverie schedules list --status paused`, and `reverie schedules resume`"
        )
    if report.endpoints_removed:
        note("reverie: addresses of embedding models in the backup are not used: set them in reverie.toml")
    if report.replaced:
        say(f"The old data folder is kept: {report.replaced}")
