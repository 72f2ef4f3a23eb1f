"""`reverie db`: check, rebuild and delete the databases. Works on the data folder, whether Reverie runs or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.application import Invocation, application, invocation
from cli.output import AsJson, Yes, confirm, print_deleted, print_json, print_table, progress_bar, say, size
from memory.sessions.forgetting import forget_workspace
from memory.trust.principals import OPERATOR
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected, ReverieError
from storage.engine import Database
from storage.engines import StoreDatabase
from storage.migrate import newest_version, schema_version
from storage.recall.generations import IndexKind
from storage.recall.index import SearchIndex
from storage.recall.reindex import reindex as rebuild
from storage.stores import Store, Stores
from storage.trust.audit import AuditEntry
from storage.upkeep.verify import verify as compare

database = typer.Typer(help="Check, rebuild and delete the databases.", no_args_is_help=True)
application.add_typer(database, name="db")

Everything = Annotated[bool, typer.Option("--all", help="All workspaces and the account.")]
OfAccount = Annotated[bool, typer.Option("--account", help="The account, whose memories apply in every workspace.")]


@database.command("migrate")
def migrate(context: typer.Context, as_json: AsJson = False) -> None:
    """Migrate every workspace and the account to the newest schema."""
    stores = invocation(context).existing_runtime.stores
    done: dict[str, str] = {"account": newest_version("account")}
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
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the schema, embedding model, size and log of each database."""
    stores = invocation(context).existing_runtime.stores
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
    context: typer.Context,
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
    command = invocation(context)
    counts: dict[str, dict[str, int]] = {}
    for name in chosen(command, everything, account=account):
        store = command.runtime.stores.workspace(name, create=False)
        for one in kinds:
            counts.setdefault(name, {})[one] = _rebuild(store, one, command.runtime.now())
    if as_json:
        print_json(counts)
    else:
        rows = [(name, index, count) for name, numbers in counts.items() for index, count in numbers.items()]
        print_table(("workspace", "index", "entries"), rows, empty="there are no workspaces yet")


@database.command("verify")
def verify(
    context: typer.Context,
    everything: Everything = False,
    account: OfAccount = False,
    quick: Annotated[bool, typer.Option(help="Do not read every page of the files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare rows, chunks, full text and vectors with each other; exit code 1 when they disagree."""
    command = invocation(context)
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
    context: typer.Context,
    workspace: Annotated[str, typer.Argument(help="The name of a workspace.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a workspace of all agents for good, with its files and everything still in the inbox."""
    confirm(f"Delete workspace {workspace!r}, of all agents, for good?", yes)
    runtime = invocation(context).existing_runtime
    deleted = forget_workspace(
        runtime.stores, runtime.inbox, runtime.working_memory, runtime.recall_log, workspace=check_workspace(workspace)
    )
    if deleted:
        runtime.stores.audit().record(
            AuditEntry(
                at=runtime.now(),
                actor=OPERATOR.name,
                action="delete-workspace",
                target=workspace,
                workspace=workspace,
            )
        )
    print_deleted(deleted, as_json, missing=NotFound(f"there is no workspace {workspace!r}", field="workspace"))


@contextmanager
def _as_finding(wrong: dict[str, list[str]], name: str) -> Iterator[None]:
    try:
        yield
    except ReverieError as error:
        wrong[name] = [str(error)]


def _rebuild(store: Store, kind: IndexKind, now: int) -> int:
    with progress_bar(f"{store.name}: {kind} index") as bar:
        task = bar.add_task("", total=None)
        return rebuild(store, kind, now=now, progress=lambda done, total: bar.update(task, completed=done, total=total))


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
    stamp = stores.stamp(name)
    row: dict[str, Any] = {
        "name": name,
        "schema": None,
        "newest": newest_version("account" if name == ACCOUNT_STORE else "workspace"),
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
    opened = Database(path)
    try:
        schema = schema_version(opened)
        return {"schema": schema} | (_models(opened) if schema == row["newest"] else {})
    except ReverieError as error:
        return {"error": str(error)}
    finally:
        opened.close()


def _models(database: StoreDatabase) -> dict[str, str]:
    """Return the model whose vectors are searched, and the one that is replacing it."""
    with database.reading() as connection:
        index = SearchIndex(connection)
        active, building = index.active("vector"), index.building("vector")
    changing = building is not None and active is not None and building.model != active.model
    return {"model": active.model if active else "", "next_model": building.model if building and changing else ""}


def _model(row: dict[str, Any]) -> str:
    change = f" (changing to {row['next_model']})" if row["next_model"] else ""
    return (row["model"] or "-") + change
