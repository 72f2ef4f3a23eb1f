"""Reads the counts of the status page from a store's file without opening the store in full.

It opens and closes a connection of its own, loads no extension and writes nothing: this takes half a millisecond and
evicts no other workspace from those kept open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pysqlite3

from reverie.calls import Resource
from reverie.clock import now_micros
from reverie.contract import EXTRACT_MEMORIES
from reverie.errors import NotFound, StoreUnavailable
from storage.driver import check_sqlite_version, inode_of, translate_errors
from storage.engines import Connection, driver_connection
from storage.memories.extraction import EXTRACT_STAGE, EXTRACTED_UP_TO, EXTRACTION_BACKLOG, EXTRACTION_MOVED
from storage.migrations import LINES, Kind, checked_versions, newest_version, scripts
from storage.pipeline.work import STAGES, StageBacklog, WorkQueue
from storage.recall.words import NO_LANGUAGES, Languages, languages_of
from storage.rows import execute, text_from_bytes
from storage.scheduling.schedules import SchedulingCounts, read_scheduling
from storage.trust.quotas import stored_amounts

# A status page must not hang: a file that stays locked for longer is reported as such.
_BUSY_SECONDS: Final = 1.0
# Both counts are read from an index, which is smaller than the rows with their contents.
_CURRENT_MEMORIES: Final = (
    "SELECT (SELECT count(*) FROM memories) - (SELECT count(*) FROM memories WHERE superseded_by IS NOT NULL)"
)
_MODEL: Final = "SELECT model, dim, embedder <> '' FROM indexes WHERE kind = 'vector' AND state = 'active'"

_AGENTS: Final = """
    SELECT agent_id, sum(sessions), sum(memories) FROM (
        SELECT agent_id, count(*) AS sessions, 0 AS memories FROM sessions WHERE agent_id <> '' GROUP BY agent_id
        UNION ALL
        SELECT agent_id, 0, count(*) FROM memories
        WHERE superseded_by IS NULL AND (expires_at IS NULL OR expires_at > :now) GROUP BY agent_id
    ) GROUP BY agent_id ORDER BY agent_id
"""


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """The waiting rows of one store (for workers, for a person, for their time), and its contents.

    `model` is that of the vectors that answer searches, empty without any, `dim` their dimension; `has_embedder` says
    that they have an embedder of their own, whatever the settings select.
    """

    backlogs: Mapping[str, StageBacklog]
    dead_letters: int
    memories: int
    scheduling: SchedulingCounts
    model: str = ""
    dim: int = 0
    has_embedder: bool = False
    languages: Languages = NO_LANGUAGES
    amounts: Mapping[Resource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentCounts:
    """The numbers of one agent's sessions, and of its memories that are neither superseded nor expired."""

    agent: str
    sessions: int
    memories: int


@contextmanager
def reading_file(path: Path, kind: Kind) -> Iterator[Connection]:
    """Open a read-only transaction on a store with the schema of this code, by a connection of the driver; 1.5 ms.

    Raises `NotFound`, `StoreUnavailable` (also for an older schema), or `StoreUnusable` (damaged, or newer).
    """
    check_sqlite_version()
    if inode_of(path) is None:
        raise NotFound(f"{path} does not exist", field="workspace")
    with translate_errors(path):
        raw = pysqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_BUSY_SECONDS)
        try:
            raw.text_factory = text_from_bytes
            raw.execute("PRAGMA query_only = ON")
            raw.execute("BEGIN")
            connection = driver_connection(raw)
            _check_schema(connection, path, kind)
            yield connection
        finally:
            raw.close()


@contextmanager
def reading_nothing() -> Iterator[Connection]:
    """Open the tables of an account without rows, in memory; 4 ms."""
    with closing(pysqlite3.connect(":memory:")) as raw:
        for script in scripts("account").values():
            raw.executescript(script.read_text(encoding="utf-8"))
        yield driver_connection(raw)


def agents_of(connection: Connection, now: int) -> list[AgentCounts]:
    """Return the agents of a store by name."""
    found = execute(connection, _AGENTS, now=now)
    return [AgentCounts(str(agent), int(count), int(known)) for agent, count, known in found]


def counts_of(connection: Connection) -> StoreCounts:
    """Return the counts of a store."""
    work = WorkQueue(connection)
    model = execute(connection, _MODEL).first()
    return StoreCounts(
        {**{stage: work.backlog(stage) for stage in STAGES}, EXTRACT_STAGE: _extraction_backlog(connection)},
        int(execute(connection, "SELECT count(*) FROM dead_letters").scalar_one()),
        int(execute(connection, _CURRENT_MEMORIES).scalar_one()),
        read_scheduling(connection),
        model=str(model[0]) if model else "",
        dim=model[1] if model and isinstance(model[1], int) else 0,
        has_embedder=bool(model and model[2]),
        languages=languages_of(connection),
        amounts=stored_amounts(connection),
    )


def _check_schema(connection: Connection, path: Path, kind: Kind) -> None:
    """Raise when a line of migrations is not at the version of this code."""
    versions = checked_versions(partial(execute, connection), path, kind)
    for line in LINES[kind]:
        if versions.get(line, "") < newest_version(line):
            raise StoreUnavailable(
                f"{path} has an older schema: it is migrated when it is next used, or by `reverie db migrate`"
            )


def _extraction_backlog(connection: Connection) -> StageBacklog:
    """Return the sessions with messages from which no memories were extracted, since each was last written."""
    job = {"job": EXTRACT_MEMORIES, "now": now_micros()}
    since = execute(connection, EXTRACTED_UP_TO, **job).scalar_one()
    waiting, oldest, reading, retrying = execute(connection, EXTRACTION_BACKLOG, **job, since=since or 0).one()
    moved = execute(connection, EXTRACTION_MOVED, **job).scalar_one() if waiting else 0
    return StageBacklog(int(waiting), int(oldest or 0), int(reading), int(retrying), int(moved or 0))
