"""How a SQLite file is opened: version gate, pragmas, who may write, and what a broken file costs."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pysqlite3
import pytest
from sqlalchemy import text

from reverie.errors import StoreUnavailable, StoreUnusable
from storage import engine
from storage.driver import OLDEST_SAFE_SQLITE, check_sqlite_version
from storage.engine import Database
from storage.rows import driver_of, execute
from storage.stores import Stores

pytestmark = pytest.mark.sqlite("connections to its files")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """The databases of a new data folder."""
    stores = Stores(tmp_path / "data")
    yield stores
    stores.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with one table and nothing of ours."""
    database = Database(tmp_path / "plain.db")
    with database.atomic() as connection:
        connection.exec_driver_sql("CREATE TABLE t (x INTEGER)")
    yield database
    database.close()


@pytest.mark.parametrize("version", [(3, 51, 2), (3, 40, 1), (3, 7, 0)])
def test_a_sqlite_that_can_corrupt_is_refused_with_what_to_install(version: tuple[int, ...]) -> None:
    """Given a SQLite with the WAL-reset bug, when a store is opened, then the error names the package."""
    with pytest.raises(StoreUnusable, match=r"pip install 'pysqlite3>=0\.6\.1'") as error:
        check_sqlite_version(version)
    assert ".".join(map(str, version)) in str(error.value)


def test_the_sqlite_in_use_and_the_oldest_safe_one_are_accepted() -> None:
    """Given the version that has the fix, and the one in use, which is not older, then nothing is raised."""
    check_sqlite_version(OLDEST_SAFE_SQLITE)
    check_sqlite_version()
    assert pysqlite3.sqlite_version_info >= OLDEST_SAFE_SQLITE


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("busy_timeout", 30_000),
        ("foreign_keys", 1),
        ("secure_delete", 1),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("mmap_size", 0),
        ("auto_vacuum", 2),
        ("query_only", 0),
    ],
)
def test_every_pragma_is_set_on_every_connection(stores: Stores, pragma: str, value: object) -> None:
    """Given two connections at once, when asked, then both are set alike, also after one was a reader."""
    database = stores.workspace("ws").database
    with database.reading():
        pass
    with database.autocommit() as first, database.autocommit() as second:
        assert [raw.execute(f"PRAGMA {pragma}").fetchone()[0] for raw in (first, second)] == [value, value]


@pytest.mark.parametrize("condition", ["WHERE x = :value", "WHERE x >= :value", "LIMIT :value"])
def test_a_statement_is_planned_once_for_all_values_and_readers(database: Database, condition: str) -> None:
    """Given a statement with a parameter, when readers run it one after the other, then SQLite plans it only once."""
    planned: list[int] = []

    def note(action: int, *_: object) -> int:
        planned.append(action)
        return pysqlite3.SQLITE_OK

    with database.atomic() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1), (2)")
        connection.exec_driver_sql("CREATE INDEX t_of_one ON t (x) WHERE x = 1")
        connection.exec_driver_sql("CREATE INDEX t_from_two ON t (x) WHERE x >= 2")
    with database.reading() as connection:
        driver_of(connection).set_authorizer(note)
    for value in (1, 2, 1):
        with database.reading() as connection:
            assert execute(connection, f"SELECT x FROM t {condition}", value=value).all()
    assert planned.count(pysqlite3.SQLITE_SELECT) == 1


def test_a_reader_cannot_write_and_the_next_writer_can(database: Database) -> None:
    """Given a connection that read, wrote and read, when a reader writes, then it is refused; a writer is not."""
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="readonly"), database.reading() as connection:
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        with database.atomic() as connection:
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    with database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 2


def test_extension_loading_is_off_again_after_sqlite_vec_is_loaded(stores: Stores) -> None:
    """Given a connection, when SQL tries to load an extension, then it is not authorised."""
    with stores.workspace("ws").database.autocommit() as raw:
        assert raw.execute("SELECT vec_version()").fetchone()[0]
        with pytest.raises(pysqlite3.OperationalError, match="not authorized"):
            raw.execute("SELECT load_extension('anything')")


def test_a_writer_holds_the_lock_from_its_first_line_and_the_second_queues(database: Database) -> None:
    """Given a writer that has written nothing yet, when a second begins, then it waits, and both commit."""
    order: list[str] = []
    begun = threading.Event()

    def second() -> None:
        begun.set()
        with database.atomic() as connection:
            order.append("second begins")
            connection.exec_driver_sql("INSERT INTO t VALUES (2)")

    thread = threading.Thread(target=second)
    with database.atomic() as connection:
        other = pysqlite3.connect(database.path, timeout=0)
        with pytest.raises(pysqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
        thread.start()
        assert begun.wait(60)
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        order.append("first ends")
    thread.join(60)
    assert order == ["first ends", "second begins"]
    with database.reading() as connection:
        assert connection.execute(text("SELECT x FROM t ORDER BY x")).scalars().all() == [1, 2]


def test_a_transaction_that_raises_leaves_nothing_behind(database: Database) -> None:
    """Given a write, when the block raises, then it is rolled back."""

    def write_and_fail() -> None:
        with database.atomic() as connection:
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM t")).scalar() == 0


def test_a_reader_cannot_write(database: Database) -> None:
    """Given a reading transaction, when it writes, then it is refused, and a later writer is not."""
    with pytest.raises(StoreUnavailable, match="readonly"), database.reading() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    with database.atomic() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")


def test_a_reader_and_a_writer_do_not_wait_for_each_other(database: Database) -> None:
    """Given an open reader, when a writer commits, then it does so at once and the reader's state stays."""
    with database.reading() as reader:
        assert reader.execute(text("SELECT count(*) FROM t")).scalar() == 0
        with database.atomic() as writer:
            writer.exec_driver_sql("INSERT INTO t VALUES (1)")
            with database.reading() as during:
                assert during.execute(text("SELECT count(*) FROM t")).scalar() == 0
        assert reader.execute(text("SELECT count(*) FROM t")).scalar() == 0
    with database.reading() as reader:
        assert reader.execute(text("SELECT count(*) FROM t")).scalar() == 1


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_files_are_the_owners_alone(tmp_path: Path, umask: int) -> None:
    """Given any umask, when stores are made, then every file is 0600 and every folder 0700."""
    before = os.umask(umask)
    try:
        stores = Stores(tmp_path / "some" / "data")
        stores.workspace("ws")
        stores.account()
        paths = [tmp_path / "some", *(tmp_path / "some").rglob("*")]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
        assert len(paths) >= 8
        assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in paths}
        stores.close()
    finally:
        os.umask(before)


def test_a_corrupt_file_is_named_and_the_other_workspaces_go_on(stores: Stores) -> None:
    """Given a file that is no database, when it is opened, then the error names it, and the next one opens."""
    path = stores.database_path("broken")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database at all " * 1_000)
    with pytest.raises(StoreUnusable, match=r"broken/memory\.db is damaged"):
        stores.workspace("broken")
    with stores.workspace("sound").writing() as tx:
        assert tx.for_agent("ana").sessions.list() == []


def test_a_folder_without_rights_is_named_with_what_to_do(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a workspace in a folder of another user, when it is opened, then the error is Reverie's own."""

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(
        StoreUnavailable, match=r"memory\.db cannot be read \(Permission denied\): check the permissions"
    ):
        stores.workspace("ws", create=False)


def test_a_file_that_is_damaged_while_it_is_open_is_named(tmp_path: Path) -> None:
    """Given a store with a page overwritten, when it is read, then the error is of the permanent family."""
    first = Stores(tmp_path)
    path = first.database_path("ws")
    first.workspace("ws")
    first.close()
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 20] = b"\xff" * (4096 * 19)
    path.write_bytes(content)
    second = Stores(tmp_path)
    with pytest.raises(StoreUnusable, match="damaged"), second.workspace("ws").reading() as tx:
        tx.connection.execute(text("SELECT count(*) FROM sessions")).scalar()
    second.close()


def test_a_newer_schema_is_refused_for_that_workspace_alone(stores: Stores) -> None:
    """Given a file of a later version, when it is opened, then the error says to upgrade, and others open."""
    stores.workspace("newer")
    with stores.workspace("newer").writing() as tx:
        tx.connection.exec_driver_sql("UPDATE schema_version SET version = '9999', oldest_program = '9999'")
    stores.close()
    with pytest.raises(StoreUnusable, match=r"newer/memory\.db has schema 9999.*upgrade Reverie"):
        stores.workspace("newer")
    stores.workspace("other")


def test_a_folder_that_cannot_be_made_is_a_passing_failure(tmp_path: Path) -> None:
    """Given a file where the folder should be, when a store is opened, then the error is transient."""
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="cannot be created"):
        Stores(tmp_path / "data").workspace("ws")


def test_a_workspace_deleted_and_made_anew_elsewhere_is_opened_anew(tmp_path: Path) -> None:
    """Given an open store, when another process replaces its files, then writes go to the new file and stay."""
    mine, theirs = Stores(tmp_path), Stores(tmp_path)
    mine.workspace("ws")
    theirs.delete_workspace("ws")
    with theirs.workspace("ws").writing() as tx:
        tx.for_agent("ana").sessions.ensure("theirs", now=1)
    with mine.workspace("ws").writing() as tx:  # closes the old file's connections: they must not touch the new log
        tx.for_agent("ana").sessions.ensure("mine", now=2)
    mine.close()
    theirs.close()
    third = Stores(tmp_path)
    with third.workspace("ws").reading() as tx:
        assert {session.id for session in tx.for_agent("ana").sessions.list()} == {"mine", "theirs"}
    third.close()


def test_only_the_workspaces_used_last_stay_open(stores: Stores) -> None:
    """Given more workspaces than stay open, when the first is used again, then it works as before."""
    for number in range(20):
        with stores.workspace(f"w{number}").writing() as tx:
            tx.for_agent("ana").sessions.ensure("s", now=number)
    with stores.workspace("w0").reading() as tx:
        assert [session.id for session in tx.for_agent("ana").sessions.list()] == ["s"]
    assert len(stores.names()) == 20


class ContendedLock:
    """A connection whose lock is always taken, on a clock of its own; others commit until a time."""

    def __init__(self, commits_until: float) -> None:
        self.now = 0.0
        self._commits_until = commits_until
        self._commits = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += 0.05

    def set_busy_timeout(self, _seconds: float) -> None:
        """It is always taken."""

    def execute(self, sql: str) -> ContendedLock:
        if sql == "BEGIN IMMEDIATE":
            error = pysqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = pysqlite3.SQLITE_BUSY
            raise error
        return self

    def fetchone(self) -> tuple[int]:
        if self.now < self._commits_until:
            self._commits += 1
        return (self._commits,)


@pytest.mark.parametrize(
    ("commits_until", "wait_seconds", "given_up_after"),
    [(0.0, 0.5, 0.5), (0.6, 0.5, 1.1), (99.0, 0.5, 2.0), (99.0, 0.0, 0.0)],
)
def test_a_contended_lock_is_waited_for_longer_than_one_that_is_held(
    monkeypatch: pytest.MonkeyPatch, commits_until: float, wait_seconds: float, given_up_after: float
) -> None:
    """Given others that commit, then a wait goes on after the last commit, and ends after four times its length."""
    lock = ContendedLock(commits_until)
    monkeypatch.setattr(engine, "time", lock)
    with pytest.raises(pysqlite3.OperationalError):
        engine._take_write_lock(lock, wait_seconds)
    assert lock.now == pytest.approx(given_up_after, abs=0.11)
