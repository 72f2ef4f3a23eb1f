"""A short look into a store's file without opening the whole store: what waits and lies there, for the status page.

It opens and closes one connection of its own, loads no extension and writes nothing: half a millisecond, and no
other workspace loses its place among the open ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pysqlite3

from reverie.errors import NotFound, StoreUnavailable
from storage.engine import check_sqlite_version, translated
from storage.migrate import LINES, Kind, newest_version, refuse_newer
from storage.pipeline.work import STAGES, Stage, StageBacklog, backlog_sql
from storage.scheduling.peek import TimePeek, peek_time

# A status page that hangs is of no use: who holds the file for longer is said to.
_BUSY_SECONDS: Final = 1.0
# Both counts are read from an index, and not from the rows with their texts.
_STANDING: Final = (
    "SELECT (SELECT count(*) FROM memories) - (SELECT count(*) FROM memories WHERE superseded_by IS NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Peek:
    """What waits in one store, for the workers, for a person and for its time, and how many memories stand there."""

    backlogs: Mapping[Stage, StageBacklog]
    dead_letters: int
    memories: int
    time: TimePeek


def peek(path: Path, kind: Kind = "workspace") -> Peek:
    """Count what waits and what is there.

    Raises `NotFound`, `StoreUnavailable`, or `StoreUnusable` (damaged, newer than this code).
    """
    check_sqlite_version()
    if not path.exists():
        raise NotFound(f"{path} does not exist", field="workspace")
    with translated(path):
        raw = pysqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_BUSY_SECONDS)
        try:
            raw.execute("PRAGMA query_only = ON")
            return _counts(raw, path, kind)
        finally:
            raw.close()


def _counts(raw: Any, path: Path, kind: Kind) -> Peek:
    raw.execute("BEGIN")
    for line, table in LINES[kind].items():
        _refuse_other(raw, path, line, table)
    backlogs = {stage: _backlog(raw, stage) for stage in STAGES}
    letters = raw.execute("SELECT count(*) FROM dead_letters").fetchone()
    return Peek(backlogs, int(letters[0]), int(raw.execute(_STANDING).fetchone()[0]), peek_time(raw))


def _refuse_other(raw: Any, path: Path, line: Kind, table: str) -> None:
    """Raise for a file in which the tables are not those of this code."""
    known = raw.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    version = raw.execute(f"SELECT version_num FROM {table}").fetchone() if known else None
    refuse_newer(path, line, version[0] if version else None)
    if version is None or version[0] != newest_version(line):
        raise StoreUnavailable(f"{path} is still to be migrated: run `reverie db migrate`")


def _backlog(raw: Any, stage: Stage) -> StageBacklog:
    waiting, claims = backlog_sql(stage)
    count, oldest = raw.execute(waiting, {"stage": stage}).fetchone()
    held, retrying = raw.execute(claims, {"stage": stage}).fetchone()
    return StageBacklog(int(count), int(oldest or 0), int(held), int(retrying))
