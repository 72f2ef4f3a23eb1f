"""`reverie backup`: back up the data folder while it is in use; list, verify and prune the backups in a folder."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.core

from cli.application import Invocation, application, invocation
from cli.interrupts import clear_interrupt
from cli.output import AsJson, Yes, confirm, note, print_json, print_list, print_result, progress_bar, say, size, when
from cli.upkeep.backup_secrets import KeyFile, NewSecret, read_secret
from reverie.counts import counted
from reverie.errors import NotFound, Rejected

if TYPE_CHECKING:
    from adapters.backups.manifest import Manifest
    from adapters.backups.repository import Repository
    from memory.upkeep.backup import BackupSource

_INTERRUPTED: Final = 130

Dest = Annotated[Path, typer.Argument(help="The folder of the backups.", show_default=False)]
BackupId = Annotated[str | None, typer.Option("--id", help="The backup. Default: the newest.", show_default=False)]


class _BackupGroup(typer.core.TyperGroup):
    """`reverie backup DEST` means `reverie backup create DEST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `create` unless a command of the group is named."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["create", *args]
        return super().parse_args(ctx, args)


backups = typer.Typer(
    cls=_BackupGroup,
    help="Back up everything while it runs, and list, verify and prune backups.",
    no_args_is_help=True,
)
application.add_typer(backups, name="backup")


@backups.command("create")
def create(
    context: typer.Context,
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
    from adapters.backups.pruning import prune_repository
    from adapters.backups.repository import create_repository, locked, make_private, open_repository, read_header
    from worker.backups import backup_source

    command = invocation(context)
    data = command.target.existing_data().resolve()
    dest = dest.resolve()
    if dest == data or dest.is_relative_to(data):
        raise Rejected(f"{dest} lies in the data folder that is backed up: name another folder", field="dest")
    header = read_header(dest)
    if header is not None and encrypt and header.key is None:
        raise Rejected(f"the backups in {dest} are not encrypted: name a new folder for --encrypt", field="encrypt")
    secret = read_secret(dest, key_file, NewSecret.ASK if encrypt else NewSecret.NONE)
    if dest.exists():
        make_private(dest, encrypted=secret is not None)
    if header is None:
        create_repository(dest, secret)
    with locked(dest), _until_interrupted(following=follow is not None):
        repository = open_repository(dest, secret)
        # Once, not for each backup of --follow: an entry is itself a change.
        _audit(command, dest)
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
def show_list(context: typer.Context, dest: Dest, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List the backups in a folder, oldest first."""
    invocation(context)
    with _opened(dest, key_file, shared=True) as repository:
        manifests, damaged = repository.manifests()
        stored = repository.stored_bytes()
    rows = [
        (m.id, when(m.created_at), len(m.stores), size(m.total_bytes), size(m.new_bytes), _state(m)) for m in manifests
    ]
    rows += [(one.id, "-", "-", "-", "-", f"damaged: {one.error}") for one in damaged]  # type: ignore[misc]
    listed = [_summary(manifest) for manifest in manifests]
    print_list(
        {"backups": listed, "damaged": damaged, "stored_bytes": stored, "encrypted": repository.is_encrypted},
        as_json,
        ("id", "begun (UTC)", "stores", "size", "added", "state"),
        rows,
        empty=f"there are no backups in {dest} yet",
    )
    if not as_json and rows:
        say(f"{size(stored)} stored in all, {'encrypted' if repository.is_encrypted else 'not encrypted'}.")


@backups.command("verify")
def verify(
    context: typer.Context,
    dest: Dest,
    backup_id: BackupId = None,
    key_file: KeyFile = None,
    scratch: Annotated[
        Path | None, typer.Option(help="A folder to restore into. Default: the system's folder for temporary files.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a scratch folder, verify its databases, and recall from it; exit code 1 if it fails."""
    invocation(context)
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
        say("It can be restored." if not check.wrong else "It is not sound.")
    raise typer.Exit(1 if check.wrong else 0)


@backups.command("prune")
def prune(
    context: typer.Context,
    dest: Dest,
    keep: Annotated[int, typer.Option(min=1, help="How many complete backups to keep, the newest.")],
    key_file: KeyFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove all but the newest backups, and the blocks that only they used."""
    from adapters.backups.pruning import prune_repository

    invocation(context)
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


@contextmanager
def _opened(dest: Path, key_file: Path | None, *, shared: bool = False) -> Iterator[Repository]:
    from adapters.backups.repository import locked, open_repository, read_header

    if read_header(dest) is None:
        raise NotFound(f"{dest} contains no backups of Reverie", field="dest")
    secret = read_secret(dest, key_file, NewSecret.NONE)
    with locked(dest, shared=shared):
        yield open_repository(dest, secret)


def _back_up(source: BackupSource, repository: Repository, *, only_changed: bool) -> Manifest | None:
    """Add a backup and return its manifest; None if `only_changed` and nothing has changed."""
    from memory.upkeep.backup import BackupProgress, back_up, has_changed

    if only_changed and not has_changed(source, repository):
        return None
    with progress_bar("backup") as bar:
        task = bar.add_task("", total=None)

        def show_store(name: str, _stores: int) -> None:
            bar.update(task, description=name)

        def show_pages(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return back_up(source, repository, BackupProgress(show_store, show_pages))


def _audit(command: Invocation, dest: Path) -> None:
    from storage.trust.audit import AuditEntry, AuditLog

    runtime = command.runtime
    entry = AuditEntry(at=runtime.now(), actor="operator", action="backup", target=str(dest))
    AuditLog(runtime.stores.account()).record(entry)


@contextmanager
def _until_interrupted(*, following: bool) -> Iterator[None]:
    """End with code 130 on Ctrl-C; what was being written has been removed. That is how `--follow` ends, with 0."""
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
