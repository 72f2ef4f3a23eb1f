"""Every table, every key in the broker and every file has its bound in docs/limits.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from adapters.broker.monitor import Monitor
from reverie.memories.calls import AddNote
from server.responses import Repeats
from storage.index.search_index import Generation
from storage.stores import Store
from support.pipeline import PREFIX, WORKSPACE, Pipeline
from support.stages import heartbeat

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
HEADING = "## What is kept, and what bounds it\n"
KINDS = ("table", "key in the broker", "file")


@pytest.fixture(scope="module")
def listed() -> dict[str, list[str]]:
    """The names and patterns in the first column of each table of the section."""
    section = PAGE.read_text("utf-8").split(HEADING)[1].split("\n## ")[0]
    found: dict[str, list[str]] = {}
    kind = ""
    for line in section.splitlines():
        first = line.strip("| ").split(" | ")[0] if line.startswith("|") else ""
        if first in KINDS:
            kind = first
        elif first and not first.startswith("---"):
            found.setdefault(kind, []).extend(re.findall(r"`([^`]+)`", first))
    return found


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline that has stored, indexed and recalled."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("zanzibar one", "zanzibar two")
    pipe.settle()
    yield pipe
    pipe.close()


def tables(store: Store) -> set[str]:
    with store.reading() as tx:
        rows = tx.connection.exec_driver_sql(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        )
        return {str(row[0]) for row in rows}


def unlisted(names: set[str], patterns: list[str]) -> set[str]:
    return {name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)}


@pytest.mark.sqlite("lists its tables with those of FTS5 and sqlite-vec")
def test_every_table_is_listed_with_its_bound_and_no_other(pipe: Pipeline, listed: dict[str, list[str]]) -> None:
    """Given the newest schema, when a table is added, then it must be said what keeps it from growing for ever."""
    present = tables(pipe.store) | tables(pipe.stores.account_store())
    assert unlisted(present, listed["table"]) == set()
    assert [name for name in listed["table"] if not any(fnmatch(table, name) for table in present)] == []
    assert len(listed["table"]) == len(set(listed["table"]))
    assert Generation.__name__  # the tables of its indexes are listed as patterns


def test_every_key_of_a_pipeline_at_work_is_listed(pipe: Pipeline, listed: dict[str, list[str]]) -> None:
    """Given messages on their way and stored, a waiting producer, recalls and heartbeats, then each key is listed."""
    monitor = Monitor(pipe.broker, prefix=PREFIX)
    monitor.record_lags([0.1])
    monitor.heartbeat(heartbeat("w", ["index"], at=0))
    monitor.record_progress("w", now=0)
    pipe.inbox.set_full(WORKSPACE, "bytes", "full")
    pipe.inbox.clear_full(WORKSPACE)
    pipe.say("one more")
    pipe.inbox.take(WORKSPACE, limit=10)
    Repeats(lambda: pipe.broker, prefix=PREFIX).answer("key", AddNote, lambda: b"answer")
    keys = {key.decode().removeprefix(PREFIX) for key in pipe.broker.keys("*")}
    assert {"inboxes", "lag", "worker:w", f"inbox:{WORKSPACE}:taken"} <= keys
    assert unlisted(keys, listed["key in the broker"]) == set()


@pytest.mark.sqlite("lists its files")
def test_every_file_of_a_data_folder_is_listed(pipe: Pipeline, listed: dict[str, list[str]]) -> None:
    """Given a data folder at work, then each file is a database, or listed."""
    pipe.stores.account()
    folder = pipe.stores.data_dir
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    databases = ["account.db", "*/memory.db", "*-shm"]
    assert "account.db" in files
    assert unlisted(files, [*databases, *listed["file"]]) == set()
