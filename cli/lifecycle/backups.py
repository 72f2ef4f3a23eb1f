"""`reverie backup` and `restore`: back up the data folder while it is in use, verify and prune backups, restore one.

The passphrase of encrypted backups comes from a key file, `REVERIE_BACKUP_PASSPHRASE`, or the terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import clear_interrupt
from cli.application import Invocation
from cli.commands import CommandGroup
from cli.groups import Group, root
from cli.output import (
    AsJson,
    Yes,
    confirm,
    note,
    print_json,
    print_result,
    print_table,
    say,
    shown_progress,
    size,
    when,
)
from cli.target import PREFIX
from reverie.clock import now_micros
from reverie.counts import counted
from reverie.errors import Conflict, NotFound, Rejected
from worker.data_folder import default_data_folder

if TYPE_CHECKING:
    from adapters.backups.manifest import Manifest
    from adapters.backups.repository import Repository
    from memory.lifecycle.backup import BackupSource
    from memory.lifecycle.restore import RestoreReport
    from storage.stores import Stores

_INTERRUPTED: Final = 130
_VARIABLE: Final = PREFIX + "BACKUP_PASSPHRASE"

Dest = Annotated[Path, typer.Argument(help="The folder of the backups.", show_default=False)]
BackupId = Annotated[str | None, typer.Option("--id", help="The backup. Default: the newest.", show_default=False)]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help=f"A file whose content is the passphrase. Default: {_VARIABLE}, or a question on the terminal.",
        show_default=False,
    ),
]


class _BackupGroup(CommandGroup):
    """`reverie backup DEST` means `reverie backup create DEST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `create` unless a command of the group is named."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["create", *args]
        return super().parse_args(ctx, args)


backups = Group("backup", cls=_BackupGroup)


@backups.command("create")
def create(
    command: Invocation,
    dest: Dest,
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt a new folder of backups.")] = False,
    key_file: KeyFile = None,
    follow: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="Add a backup each time something has changed, until Ctrl-C."),
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Keep this many backups, and remove older ones.")] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="A folder for copies of databases. Default: the data folder.")
    ] = None,
    with_keys: Annotated[
        bool,
        typer.Option("--with-keys", help="Include installation.key, which encrypted backups have in any case."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a backup of the data folder to a folder of backups, which is created. The word `create` may be left out."""
    from adapters.backups.repository import (
        create_repository,
        locked,
        make_private,
        open_repository,
        prune_repository,
        read_header,
    )
    from worker.backups import backup_source

    data = command.target.existing_data().resolve()
    dest = dest.resolve()
    if dest == data or dest.is_relative_to(data):
        raise Rejected(f"{dest} lies in the data folder that is backed up: name another folder", field="dest")
    header = read_header(dest)
    if header is not None and encrypt and header.key is None:
        raise Rejected(f"the backups in {dest} are not encrypted: name a new folder for --encrypt", field="encrypt")
    secret = _read_secret(dest, key_file, encrypt=encrypt)
    if dest.exists():
        make_private(dest, encrypted=secret is not None)
    if header is None:
        create_repository(dest, secret)
    with locked(dest), _until_interrupted(following=follow is not None):
        repository = open_repository(dest, secret)
        # Recorded once, not for each backup of --follow: the entry itself is a change that would cause the next backup.
        _audit(command.runtime.stores, "backup", str(dest))
        while True:
            source = backup_source(command.runtime, scratch, with_keys=with_keys)
            manifest = _back_up(source, repository, only_changed=follow is not None)
            if manifest is not None:
                _show(manifest, as_json)
                if keep is not None:
                    prune_repository(repository, keep)
            if follow is None:
                raise typer.Exit(1 if manifest is not None and manifest.failed else 0)
            time.sleep(follow)


@backups.command("list")
def show_list(dest: Dest, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List the backups in a folder, oldest first."""
    with _opened(dest, key_file, shared=True) as repository:
        manifests, damaged = repository.manifests()
        stored = repository.stored_bytes()
    rows = [
        (m.id, when(m.created_at), len(m.stores), size(m.total_bytes), size(m.new_bytes), _state(m)) for m in manifests
    ]
    rows += [(one.id, "-", "-", "-", "-", f"damaged: {one.error}") for one in damaged]  # type: ignore[misc]
    if as_json:
        listed = [_summary(manifest) for manifest in manifests]
        print_json(
            {"backups": listed, "damaged": damaged, "stored_bytes": stored, "encrypted": repository.is_encrypted}
        )
        return
    columns = ("id", "begun (UTC)", "stores", "size", "added", "state")
    print_table(columns, rows, empty=f"there are no backups in {dest} yet")
    if rows:
        say(f"{size(stored)} stored in all, {'encrypted' if repository.is_encrypted else 'not encrypted'}.")


@backups.command("verify")
def verify(
    dest: Dest,
    backup_id: BackupId = None,
    key_file: KeyFile = None,
    scratch: Annotated[
        Path | None, typer.Option(help="A folder to restore into. Default: the system's folder for temporary files.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a scratch folder, verify its databases, and recall from it; exit code 1 if it fails."""
    from worker.backups import check_backup
    from worker.logs import log_to_standard_error

    log_to_standard_error()
    with _opened(dest, key_file, shared=True) as repository:
        manifest = chosen(repository, backup_id)
        folder = Path(tempfile.mkdtemp(prefix="reverie-verify-", dir=scratch))
        try:
            check = check_backup(repository, manifest, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(check)
    else:
        for name, reasons in check.wrong.items():
            for reason in reasons:
                say(f"{name}: {reason}")
        rows = sum(counts.get("messages", 0) for counts in check.counts.values())
        say(f"Backup {check.backup}: {counted(len(check.counts), 'store')} with {counted(rows, 'message')} restored,")
        say(f"{check.recalled} of {check.asked} messages recalled by their words.")
        say("It can be restored." if not check.wrong else "It failed the check.")
    raise typer.Exit(1 if check.wrong else 0)


@backups.command("prune")
def prune(
    dest: Dest,
    keep: Annotated[int, typer.Option(min=1, help="How many complete backups to keep, the newest.")],
    key_file: KeyFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove all but the newest backups, and the blocks that only they used."""
    from adapters.backups.repository import prune_repository

    _require_repository(dest)
    confirm(f"Remove all backups in {dest} but the newest {keep}, for good?", yes)
    with _opened(dest, key_file) as repository:
        removed, blocks, freed = prune_repository(repository, keep)
    result = {"removed": removed, "blocks": blocks, "bytes": freed}
    print_result(result, as_json, f"{counted(len(removed), 'backup')} removed, {size(freed)} freed.")


def chosen(repository: Repository, backup_id: str | None) -> Manifest:
    """Return a backup by its id, by default the newest. Raises `NotFound`, and `StoreUnusable` if it is damaged."""
    ids = repository.ids()
    if not ids:
        raise NotFound(f"there are no backups in {repository.folder} yet", field="dest")
    return repository.manifest(ids[-1] if backup_id is None else backup_id)


def _require_repository(dest: Path) -> None:
    from adapters.backups.repository import read_header

    if read_header(dest) is None:
        raise NotFound(f"{dest} contains no backups of Reverie", field="dest")


@contextmanager
def _opened(dest: Path, key_file: Path | None, *, shared: bool = False) -> Iterator[Repository]:
    from adapters.backups.repository import locked, open_repository

    _require_repository(dest)
    secret = _read_secret(dest, key_file)
    with locked(dest, shared=shared):
        yield open_repository(dest, secret)


def _back_up(source: BackupSource, repository: Repository, *, only_changed: bool) -> Manifest | None:
    """Add a backup and return its manifest; None if `only_changed` and nothing has changed."""
    from memory.lifecycle.backup import back_up, has_changed

    if only_changed and not has_changed(source, repository):
        return None
    with shown_progress("backup") as show:
        return back_up(source, repository, show)


def _audit(stores: Stores, action: str, target: str) -> None:
    from storage.trust.audit import AuditEntry

    stores.audit().record(AuditEntry(at=now_micros(), actor="operator", action=action, target=target))


@contextmanager
def _until_interrupted(*, following: bool) -> Iterator[None]:
    """End with code 130 on Ctrl-C, or with 0 for `--follow`, which ends so. An unfinished backup has been removed."""
    try:
        yield
    except KeyboardInterrupt:
        clear_interrupt()
        if not following:
            note("reverie: interrupted: nothing was added")
        raise typer.Exit(0 if following else _INTERRUPTED) from None


def _show(manifest: Manifest, as_json: bool) -> None:
    if as_json:
        print_json(_summary(manifest))
        sys.stdout.flush()
        return
    seconds = (manifest.finished_at - manifest.created_at).total_seconds()
    say(
        f"Backup {manifest.id}: {counted(len(manifest.stores), 'store')}, {size(manifest.total_bytes)} in all,"
        f" {size(manifest.new_bytes)} added in {seconds:.1f} s."
    )
    for name, reason in manifest.failed.items():
        say(f"{name} is missing: {reason}")
    sys.stdout.flush()


def _summary(manifest: Manifest) -> dict[str, Any]:
    stores = {name: file.store for name, file in manifest.stores.items() if file.store is not None}
    return {
        "id": manifest.id,
        "created_at": manifest.created_at,
        "finished_at": manifest.finished_at,
        "product": manifest.product,
        "bytes": manifest.total_bytes,
        "new_blocks": manifest.new_blocks,
        "new_bytes": manifest.new_bytes,
        "stores": {name: {**store.counts, "newest_message": store.newest_message} for name, store in stores.items()},
        "queued": manifest.queued,
        "failed": manifest.failed,
    }


def _state(manifest: Manifest) -> str:
    return f"incomplete: without {', '.join(manifest.failed)}" if manifest.failed else "complete"


def _read_secret(dest: Path, key_file: Path | None, *, encrypt: bool = False) -> bytes | None:
    """Return the passphrase for the backups in a folder; None if they are not encrypted.

    A folder without backups gets a passphrase if it is to `encrypt` them.

    Raises `Rejected` if a passphrase is needed and none is given, or the key file cannot be read.
    """
    from adapters.backups.repository import read_header

    header = read_header(dest)
    if key_file is not None:
        from worker.backups import secret_in

        return secret_in(key_file)
    encrypted = encrypt if header is None else header.key is not None
    if not encrypted:
        return None
    if given := os.environ.get(_VARIABLE):
        return given.encode()
    if not sys.stdin.isatty():
        raise Rejected(f"the backups in {dest} are encrypted: set {_VARIABLE}, or use --key-file", field="passphrase")
    asked: str = typer.prompt("Passphrase", hide_input=True, err=True, confirmation_prompt=header is None)
    return asked.encode()


@root.command("restore")
def restore(
    command: Invocation,
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
        typer.Option("--keep-endpoints", help="Keep webhook schedules active, and keep the addresses of models."),
    ] = False,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup to the data folder, which must not be in use. Nothing is changed unless all of it verifies."""
    from memory.lifecycle import restore as restoring
    from storage.stores import Stores

    command.starts_stack = True  # so never restore into the data folder of a Reverie that runs elsewhere
    target = (command.target.data or default_data_folder()).resolve()
    if backup_id is not None and at is not None:
        raise Rejected("give --id or --at", field="at")
    if dest.resolve().is_relative_to(target):
        raise Rejected(f"{dest} lies in the data folder to be replaced: move the backups first", field="dest")
    with (
        _opened(dest, key_file, shared=True) as repository,
        ExitStack() as holding,
        shown_progress("restore") as show,
    ):
        manifest = _select(repository, backup_id, at)
        if not incomplete:
            _require_complete(manifest)
        if target.exists() and any(target.iterdir()) and replace:
            _hold(target, holding)
        report = restoring.restore(
            repository,
            manifest,
            target,
            restoring.RestoreOptions(
                now=now_micros,
                replace=replace,
                keep_endpoints=keep_endpoints,
                newest=_newest(repository),
                on_file=show,
            ),
        )
    with closing(Stores(target)) as stores:
        _audit(stores, "restore", report.backup)
    print_result(report, as_json, lambda: _show_restored(report))


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


def _show_restored(report: RestoreReport) -> None:
    messages = sum(counts.get("messages", 0) for counts in report.stores.values())
    say(
        f"Backup {report.backup} restored to {report.data}: {counted(len(report.stores), 'store')} with"
        f" {counted(messages, 'message')}, {size(report.bytes)}."
    )
    if report.stored_from_queue:
        say(f"Stored from the queue of that time: {counted(report.stored_from_queue, 'message')}.")
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
