"""Copies all stores of an installation from one engine to the other, even while they are being written.

Each store is read in one snapshot and written in one transaction, with the numbers of its rows, and compared row by row
before that transaction commits. The note about a copy has the state of its source: a store that was not written since
is not copied again, and an incomplete copy is begun anew.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from reverie.clock import now_micros
from reverie.errors import NotFound, Permanent, Rejected, StoreUnavailable
from storage.engine import Database
from storage.index.search_index import SearchIndex
from storage.opening import identity_of
from storage.postgres.copied_rows import (
    CopiedTable,
    Digest,
    RunningDigest,
    batches,
    copied_tables,
    count_rows,
    read_rows,
    read_vectors,
    used_numbers,
)
from storage.postgres.copy_targets import PostgresCopies, PostgresWriter, SqliteCopies, SqliteWriter
from storage.postgres.stores import PostgresStores
from storage.stores import Store, Stores

# Stores that were written since are copied again at most this many times: a running Reverie writes without end.
_ROUNDS: Final = 4
_POSTGRES: Final = ("postgresql:", "postgresql+psycopg:", "postgres:")

# The targets of copies, and the writers of single stores.
CopyTarget = PostgresCopies | SqliteCopies
_Writer = PostgresWriter | SqliteWriter
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class CopyReport:
    """The result of a copy. `rows` are the rows that this run copied, by store.

    `kept` are the stores whose copies were complete before, `written` the stores that have to be copied again, `wrong`
    the faults found in copies, by store, and `removed` the stores whose copies were removed, since they were deleted.
    """

    rows: dict[str, int] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Return whether the copy is sound and has everything that the source has."""
        return not self.written and not self.wrong


def open_target(source: Stores, to: str) -> CopyTarget:
    """Return the place that `to` names: the address of a PostgreSQL database, or an empty folder.

    Raises `Rejected` for the source's own engine, `StoreUnusable` and `StoreUnavailable` for an unusable database.
    """
    if to.startswith("sqlite"):
        raise Rejected("--to names the folder for SQLite files by its path, such as /var/lib/reverie", field="to")
    is_database = to.startswith(_POSTGRES)
    if is_database == isinstance(source, PostgresStores):
        here = "in a PostgreSQL database" if is_database else "in SQLite files"
        hint = "name an empty folder" if is_database else "name a database, such as postgresql+psycopg://user@host/name"
        raise Rejected(f"--to {to}: this installation is {here} already: {hint}", field="to")
    if is_database:
        return PostgresCopies(source.data_dir, to)
    folder = Path(to).expanduser().resolve()
    if folder.is_relative_to(source.data_dir.resolve()):
        raise Rejected(f"--to {to} is in the present data folder: name a folder elsewhere", field="to")
    return SqliteCopies(folder)


def copy_all(source: Stores, target: CopyTarget, progress: Progress = lambda _name, _done, _total: None) -> CopyReport:
    """Copy all stores that are not copied yet or were written since, in rounds while the source is written.

    `progress` gets the store, the rows copied or compared so far, and their number in all. Raises `Conflict` for a
    target with other data, and the errors of both engines; copies that are complete by then stay.
    """
    source.account()
    target.claim(_installation_of(source))
    report = CopyReport()
    report.kept = sorted(set(source.all_names()) - set(_waiting(source, target, report)))
    for _ in range(_ROUNDS):
        waiting = _waiting(source, target, report)
        for name in waiting:
            _copy(source, target, name, progress, report)
        if len(_waiting(source, target, report)) in (0, len(waiting)):
            break
    for name in sorted(target.copies().keys() - set(source.all_names())):
        target.remove(name)
        report.removed.append(name)
    if report.rows:
        target.refresh_statistics()
    report.written = _waiting(source, target, report)
    report.kept = [name for name in report.kept if name not in report.rows]
    return report


def _waiting(source: Stores, target: CopyTarget, report: CopyReport) -> list[str]:
    """Return the stores that have no complete copy or were written since, except those with faulty copies."""
    copies = target.copies()
    return [
        name
        for name in source.all_names()
        if name not in report.wrong and (name not in copies or copies[name].source != _state(source, name))
    ]


def _state(source: Stores, name: str) -> str:
    """Return a text that changes when a store is written, or deleted and created again."""
    return f"{source.file_of(name)} {source.stamp(name)}"


def _copy(source: Stores, target: CopyTarget, name: str, progress: Progress, report: CopyReport) -> None:
    try:
        store = source.workspace(name, create=False)
        # The next write makes the empty log longer, so it is noticed even if file times have not advanced.
        store.database.truncate_log()
        stamp, state = source.stamp(name), _state(source, name)
        rows = copy_store(store, target, lambda done, total: progress(name, done, total))
    except NotFound:  # deleted a moment ago
        return
    report.rows[name] = rows
    verdict = target.verify(name)
    if verdict.wrong:
        report.wrong[name] = verdict.wrong
    elif stamp is not None and (not stamp.log_size or stamp.is_settled(now_micros())):
        target.note(name, state)


def copy_store(store: Store, target: CopyTarget, progress: Callable[[int, int], None]) -> int:
    """Copy one store and compare the copy row by row; return how many rows it has.

    `progress` gets the rows read or compared so far, and their number in all. Raises `Permanent` if the copy differs.
    """
    with store.reading() as tx, target.replacing(store.name) as writer:
        total = 2 * count_rows(tx.connection, store.name)
        done = 0

        def step(rows: int) -> None:
            nonlocal done
            done += rows
            progress(done, total)

        digests = {table.name: _copy_table(tx.connection, writer, table, step) for table in copied_tables(store.name)}
        writer.set_numbers(used_numbers(tx.connection, store.name))
        writer.restore_schema()
        index = SearchIndex(writer.connection)
        for generation in tx.index.generations():
            index.create_tables(generation)
            if generation.kind == "text":
                index.fill_texts(generation, after=0, last=generation.built_to)
            else:
                held = tx.index.vector_ids(generation)
                vectors = (entry for entry in read_vectors(tx.connection, generation) if entry[0] in held)
                writer.fill_vectors(generation, vectors)
        for table in copied_tables(store.name):
            _compare(store.name, table, digests[table.name], writer.connection, step)
    return sum(digest.rows for digest in digests.values())


def _copy_table(source: Connection, writer: _Writer, table: CopiedTable, step: Callable[[int], None]) -> Digest:
    running = RunningDigest()
    for batch in batches(running.passing(read_rows(source, table))):
        writer.insert(table, batch)
        step(len(batch))
    return running.digest


def _compare(store: str, table: CopiedTable, expected: Digest, copy: Connection, step: Callable[[int], None]) -> None:
    running = RunningDigest()
    for batch in batches(running.passing(read_rows(copy, table))):
        step(len(batch))
    if running.digest != expected:
        raise Permanent(
            f"{store}: {table.name} differs in the copy ({expected.rows:,} rows were read, {running.digest.rows:,} were"
            " written, or some of them differ): nothing of this store was kept, try again, and report it if it recurs"
        )


def _installation_of(source: Stores) -> str:
    """Return the id by which the source differs from other installations; a database gets one when first copied."""
    if isinstance(source, PostgresStores):
        return f"postgresql {source.installation()}"
    account = source.account()
    assert isinstance(account, Database)
    return f"sqlite {identity_of(account)}"


# --- files beside the databases ---
# Keys, secrets, histories of memory files, and the broker's files are copied as they are.

# Files of running processes and of copies, and the identities of stores: the folder may have had others before.
_LEFT_OUT: Final = frozenset(
    {
        "run",
        "logs",
        "deleted",
        "known",
        "copying",
        "copies.json",
        "copies.lock",
        ".gitignore",
        "backups.used",
        "host.json",
        "workspaces.lock",
    }
)
# Left out of every folder: databases, and the marks of folders, which name a store of the source.
_OF_ANY_FOLDER: Final = ("account.db", "memory.db", ".new-", "store.id")


def copy_files(source: Path, target: Path) -> None:
    """Copy all files of a data folder except databases to a folder whose databases were copied. Safe to repeat.

    Nobody may write the source meanwhile. Raises `StoreUnavailable` when a file cannot be copied.
    """

    def left_out(folder: str, names: Collection[str]) -> set[str]:
        at_top = Path(folder) == source
        return {
            name
            for name in names
            if (at_top and name in _LEFT_OUT) or name.startswith(_OF_ANY_FOLDER) or _is_special(Path(folder) / name)
        }

    try:
        shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise StoreUnavailable(
            f"the files of {source} cannot be copied to {target} ({error}): check the disk"
        ) from error


def _is_special(path: Path) -> bool:
    """Return whether a path is a socket, a pipe or a device."""
    mode = os.lstat(path).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
