"""`reverie db`: check, rebuild, copy and delete the databases, and see which hosts share one.

Works on the data folder, whether Reverie runs or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.application import Invocation
from cli.groups import Group
from cli.output import (
    AsJson,
    StoreProgress,
    Yes,
    confirm,
    note,
    print_deleted,
    print_json,
    print_result,
    print_table,
    say,
    shown_progress,
    size,
    when,
)
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.counts import counted
from reverie.errors import Conflict, NotFound, Rejected, ReverieError, StoreUnusable
from reverie.sessions.calls import DeleteWorkspace

if TYPE_CHECKING:
    from storage.engines import StoreDatabase
    from storage.index.search_index import IndexKind
    from storage.postgres.copying import CopyReport
    from storage.postgres.hosts import Hosts
    from storage.stores import Store, Stores

_INTERRUPTED: Final = 130
_NAMES_SHOWN: Final = 5
# The processes of a host report every two seconds: a host that is silent this long does not run.
_SILENT_SECONDS: Final = 60.0

database = Group("db")

Everything = Annotated[bool, typer.Option("--all", help="All workspaces and the account.")]
OfAccount = Annotated[bool, typer.Option("--account", help="The account, whose memories apply in every workspace.")]


@database.command("migrate")
def migrate(command: Invocation, as_json: AsJson = False) -> None:
    """Migrate every workspace and the account to the newest schema."""
    from storage.migrations import newest_version

    stores = command.existing_runtime.stores
    done: dict[str, str] = {ACCOUNT_STORE: newest_version("account")}
    failed: dict[str, str] = {}
    stores.account()
    for name in stores.names():
        try:
            stores.workspace(name)
            done[name] = newest_version("workspace")
        except ReverieError as error:
            failed[name] = str(error)
    if as_json:
        print_json({"migrated": done, "failed": failed})
    else:
        print_table(("database", "schema"), done.items(), empty="there are no workspaces yet")
        for name, reason in failed.items():
            say(f"{name}: {reason}")
    raise typer.Exit(1 if failed else 0)


@database.command("status")
def status(command: Invocation, as_json: AsJson = False) -> None:
    """Show the schema, embedding model, size and log of each database."""
    stores = command.existing_runtime.stores
    rows = [_file_status(stores, name) for name in stores.all_names()]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("workspace", "schema", "newest", "model", "size", "log", "error"),
        [
            (
                r["name"],
                r["schema"] or "-",
                r["newest"],
                _model(r),
                *map(_size, (r["bytes"], r["log_bytes"])),
                r["error"],
            )
            for r in rows
        ],
        empty="there are no workspaces yet",
    )


@database.command("reindex")
def reindex(
    command: Invocation,
    kind: Annotated[str, typer.Option(help="text, vector or both.")] = "both",
    everything: Everything = False,
    account: OfAccount = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the search indexes while they are in use. After an interruption, the next run continues."""
    kinds: tuple[IndexKind, ...] = ("text", "vector")
    if kind != "both":
        if kind not in kinds:
            raise typer.BadParameter("text, vector or both", param_hint="--kind")
        kinds = ("text",) if kind == "text" else ("vector",)
    counts: dict[str, dict[str, int]] = {}
    for name in chosen(command, everything, account=account):
        store = command.runtime.stores.workspace(name, create=False)
        for one in kinds:
            counts.setdefault(name, {})[one] = _rebuild(store, one, command.runtime.now())
    rows = [(name, index, count) for name, numbers in counts.items() for index, count in numbers.items()]
    columns = ("workspace", "index", "entries")
    print_result(counts, as_json, lambda: print_table(columns, rows, empty="there are no workspaces yet"))


@database.command("verify")
def verify(
    command: Invocation,
    everything: Everything = False,
    account: OfAccount = False,
    quick: Annotated[bool, typer.Option(help="Do not read every page of the files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare rows, chunks, full text and vectors with each other; exit code 1 when they disagree."""
    from storage.verify import verify as compare

    wrong: dict[str, list[str]] = {}
    counts: dict[str, dict[str, int]] = {}
    for name in chosen(command, everything, account=account):
        with _as_finding(wrong, name):
            verdict = compare(command.runtime.stores.workspace(name, create=False), quick=quick)
            counts[name] = verdict.counts
            if verdict.wrong:
                wrong[name] = verdict.wrong
    if as_json:
        print_json({"counts": counts, "wrong": wrong})
    else:
        columns = ("messages", "chunks", "vectors", "in_vector_index", "dead_letters")
        rows = [(name, *(numbers.get(column, "-") for column in columns)) for name, numbers in counts.items()]
        if rows or not wrong:
            print_table(("workspace", *columns), rows, empty="there are no workspaces yet")
        for name, findings in wrong.items():
            for finding in findings:
                say(f"{name}: {finding}")
        if counts and not wrong:
            say("Everything agrees.")
    raise typer.Exit(1 if wrong else 0)


@database.command("delete")
def delete(
    command: Invocation,
    workspace: Annotated[str, typer.Argument(help="The name of a workspace.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a workspace of all agents for good, with its files and everything still in the inbox."""
    missing = NotFound(f"there is no workspace {workspace!r}", field="workspace")
    if not command.existing_runtime.stores.exists(check_workspace(workspace)) and not yes:
        raise missing
    confirm(f"Delete workspace {workspace!r}, of all agents, for good?", yes)
    print_deleted(command.answer(DeleteWorkspace(), workspace=workspace).deleted, as_json, missing=missing)


@database.command("accept")
def accept(
    command: Invocation,
    workspace: Annotated[str, typer.Argument(help="The name of a workspace.")] = "",
    account: OfAccount = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept the file that is there as the database of a store whose own file was lost, damaged or replaced.

    An older copy of the database is used from then on. If there is no file, the store begins anew, empty; a damaged
    file is moved aside. To have the old content again, put a backup of the file in its place first. Restart Reverie
    afterwards.
    """
    if bool(workspace) == account:
        raise Rejected("name one workspace, or give --account", field="workspace")
    name = ACCOUNT_STORE if account else check_workspace(workspace)
    stores = command.existing_runtime.stores
    if not stores.exists(name):
        raise NotFound(f"there is no workspace {name!r}", field="workspace")
    confirm(f"Use the file that is there now, or none, as the database of {name!r}?", yes)
    aside = stores.accept(name)
    has_file = stores.database_path(name).exists()
    if as_json:
        print_json({"accepted": name, "is_empty": not has_file, "moved_to": None if aside is None else str(aside)})
        return
    say(f"{name}: " + ("its file was accepted." if has_file else "its database begins anew, empty."))
    if aside is not None:
        say(f"The damaged file is in {aside}.")


@contextmanager
def _as_finding(wrong: dict[str, list[str]], name: str) -> Iterator[None]:
    try:
        yield
    except ReverieError as error:
        wrong[name] = [str(error)]


def _rebuild(store: Store, kind: IndexKind, now: int) -> int:
    from storage.reindex import reindex as rebuild

    with shown_progress(f"{store.name}: {kind} index") as show:
        return rebuild(store, kind, now=now, progress=show)


def chosen(command: Invocation, everything: bool, *, account: bool) -> list[str]:
    """Return the names of the stores that the options choose.

    Raises `Rejected` for both options at once, and `NotFound` where there is no data folder.
    """
    if everything and account:
        raise Rejected("give --all or --account: --all includes the account", field="account")
    if everything:
        return command.existing_runtime.stores.all_names()
    command.target.existing_data()
    return [ACCOUNT_STORE if account else command.settings.workspace]


def _file_status(stores: Stores, name: str) -> dict[str, Any]:
    from storage.migrations import newest_version
    from storage.stores import kind_of

    stamp = stores.stamp(name)
    row: dict[str, Any] = {
        "name": name,
        "schema": None,
        "newest": newest_version(kind_of(name)),
        "model": "",
        "next_model": "",
        "bytes": None,
        "log_bytes": None,
        "error": "",
    }
    if stamp is not None and stamp.is_of_file:
        return row | {"bytes": stamp.size, "log_bytes": stamp.log_size} | _file_state(stores.database_path(name), row)
    # The schema of a database was checked when it was opened.
    return row | {"schema": row["newest"]} | _models(stores.workspace(name, create=False).database)


def _size(count: int | None) -> str:
    return "-" if count is None else size(count)


def _file_state(path: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema and the models of a file, or its error, without migrating it."""
    from storage.engine import Database
    from storage.migrations import read_versions
    from storage.stores import kind_of

    opened = Database(path)
    try:
        with opened.reading() as connection:
            schema = read_versions(connection.exec_driver_sql).get(kind_of(row["name"]))
        return {"schema": schema} | (_models(opened) if schema == row["newest"] else {})
    except ReverieError as error:
        return {"error": str(error)}
    finally:
        opened.close()


def _models(database: StoreDatabase) -> dict[str, str]:
    """Return the model whose vectors are searched, and the one that is replacing it."""
    from storage.index.search_index import SearchIndex

    with database.reading() as connection:
        index = SearchIndex(connection)
        active, building = index.active("vector"), index.building("vector")
    changing = building is not None and active is not None and building.model != active.model
    return {"model": active.model if active else "", "next_model": building.model if building and changing else ""}


def _model(row: dict[str, Any]) -> str:
    change = f" (changing to {row['next_model']})" if row["next_model"] else ""
    return (row["model"] or "-") + change


@database.command("hosts")
def hosts(
    command: Invocation,
    forget: Annotated[
        str | None, typer.Option(help="The id of a host that is gone for good: erasures wait for it no longer.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the hosts that share a PostgreSQL database, or forget one.

    An erasure ends when each host has removed the content from its files. A forgotten host that comes back keeps only
    what the database has.
    """
    from storage.opened import hosts_of

    shared = hosts_of(command.existing_runtime.stores)
    if shared is None:
        if forget is not None:
            raise NotFound("the stores are files of this host, and no other host uses them", field="forget")
        print_result([], as_json, "The stores are files of this host, and no other host uses them.")
        return
    if forget is not None:
        missing = NotFound(f"there is no host {forget!r}: `reverie db hosts` lists them", field="forget")
        if not any(host.id == forget for host in shared.all()):
            raise missing
        confirm("Is the host gone for good? The receipts of erasures will name it as out of reach.", yes)
        print_deleted(shared.forget(forget), as_json, missing=missing)
        return
    found = shared.all()
    columns = ("id", "host", "joined", "heard of", "erasures waiting", "error")
    rows = [
        (one.id, one.name, when(one.joined_at), f"{one.silent_seconds:,.0f} s ago", one.erasures, one.error)
        for one in found
    ]
    listed = [asdict(one) for one in found]
    print_result(listed, as_json, lambda: print_table(columns, rows, empty="No host has joined yet."))


@database.command("apply-tombstones")
def apply(command: Invocation, yes: Yes = False, as_json: AsJson = False) -> None:
    """Erase again what an older dump of the PostgreSQL database has brought back.

    Run it on a host that Reverie ran on before, once the dump is restored and before Reverie is started anywhere: the
    tombstones of what was erased lie in the data folder of each host.
    """
    from memory.lifecycle.restore import apply_tombstones
    from memory.tombstones import SharedTombstones, read_tombstones
    from storage.opened import hosts_of
    from storage.trust.audit import AuditEntry

    runtime = command.existing_runtime
    hosts = hosts_of(runtime.stores)
    if hosts is None:
        raise Rejected("the stores are files: `reverie restore` applies tombstones by itself", field="database")
    _require_silence(hosts)
    SharedTombstones(runtime.settings.data, hosts).exchange()
    if any(read_tombstones(runtime.settings.data)):
        confirm("Erase from the database what the tombstones of this data folder name?", yes)
    else:
        note(
            f"reverie: {runtime.settings.data} has no tombstones: nothing was erased yet, or Reverie never ran on this"
            " database with this folder"
        )
    removed = apply_tombstones(runtime.stores, now=runtime.now())
    runtime.stores.audit().record(
        AuditEntry(at=runtime.now(), actor="operator", action="db.apply-tombstones", target="")
    )
    rows = ", ".join(f"{table} ({count:,})" for table, count in sorted(removed.items()))
    text = f"Erased again, rows by table: {rows}." if removed else "Nothing had come back."
    print_result({"removed": removed}, as_json, text)


def _require_silence(hosts: Hosts) -> None:
    """Raise `Conflict` if Reverie runs on a host: it would go on using what is being erased."""
    heard_of = [
        f"{host.name} ({host.silent_seconds:,.0f} s ago)"
        for host in hosts.all()
        if host.silent_seconds < _SILENT_SECONDS
    ]
    if heard_of:
        raise Conflict(
            f"Reverie ran within the last minute on {', '.join(heard_of)}: stop it on all hosts, and try again in a"
            " minute",
            field="data",
        )


@database.command("copy")
def copy(
    command: Invocation,
    to: Annotated[
        str, typer.Option("--to", help="The URL of a PostgreSQL database; from there, the path of an empty folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy all stores to a PostgreSQL database or back to SQLite files; exit code 1 if the copy is not complete yet.

    Stores that were copied before are copied again if they were written since. Reverie may run meanwhile: then stop
    it, and copy once more.
    """
    from adapters.kept_secrets import installation_key
    from memory.tombstones import hash_key

    try:
        from storage.postgres.copying import copy_all, copy_files, open_target
    except ImportError as error:
        raise StoreUnusable(
            f"copies to or from PostgreSQL need {error.name}: pip install 'reverie-pipeline[postgres]'"
        ) from error
    stores = command.existing_runtime.stores
    progress = StoreProgress()
    with _interruptible(progress), closing(open_target(stores, to)) as target, shown_progress("rows") as show:

        def show_store(store: str, done: int, total: int) -> None:
            progress.store, progress.done, progress.total = store, done, total
            show(done, total)

        report = copy_all(stores, target, show_store)
        data = stores.data_dir
        target.share_keys(erasures=hash_key(data).secret, installation=installation_key(data))
    is_running = command.target.has_supervisor
    to_folder = command.settings.database is not None
    if report.is_complete and not is_running and to_folder:
        copy_files(stores.data_dir, Path(to).expanduser())
    is_complete = report.is_complete and not is_running
    if as_json:
        print_json({"complete": is_complete, **asdict(report)})
    else:
        _show_copied(report)
        say(_next_step(report, to, is_running=is_running, to_folder=to_folder))
    raise typer.Exit(0 if is_complete else 1)


def _show_copied(report: CopyReport) -> None:
    rows = sum(report.rows.values())
    kept = f"; {counted(len(report.kept), 'store')} had been copied before" if report.kept else ""
    say(f"{counted(len(report.rows), 'store')} copied and compared, {counted(rows, 'row')}{kept}.")
    if report.removed:
        say(f"Removed, because they were deleted here: {_names(report.removed)}.")
    for name, findings in report.wrong.items():
        for finding in findings:
            say(f"{name}: {finding}")


def _next_step(report: CopyReport, to: str, *, is_running: bool, to_folder: bool) -> str:
    if report.wrong:
        return "Not complete: run `reverie db verify --all` here, repair what it finds, and copy again."
    if report.written or is_running:
        written = f"written since they were copied: {_names(report.written)}" if report.written else "Reverie runs"
        return (
            f"Not complete: {written}. Stop Reverie on all hosts and run the same command again, which copies only what"
            " was written since."
        )
    if to_folder:
        return (
            f"Complete. Remove REVERIE_DATABASE (`database` in reverie.toml) on all hosts, and start Reverie on {to}"
            " with --data or REVERIE_DATA."
        )
    return (
        "Complete. Set REVERIE_DATABASE (`database` in reverie.toml) to this address on all hosts, and start Reverie."
        " The SQLite files stay as they are."
    )


@contextmanager
def _interruptible(progress: StoreProgress) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        count = (
            f"{progress.store}: {progress.done:,} of {counted(progress.total, 'row')}" if progress.store else "nothing"
        )
        note(f"reverie: interrupted ({count}); the same command goes on with the stores that are not complete")
        raise typer.Exit(_INTERRUPTED) from None


def _names(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
