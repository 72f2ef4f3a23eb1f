"""The forward index: the words, position and speaker of each chunk of an agent, and the changes to it.

An index in memory (`retrieval.index.agent_index`) is built from these rows and from the canonical vectors. It notes the
position of the last change that it read, and afterwards reads only later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from storage.engines import Connection
from storage.repository import AgentRepository
from storage.rows import execute, is_vector, records_of, select_list

# Rows read at a time: a few megabytes of vectors.
_BATCH: Final = 2_048
# With more changes than this, reading everything again is cheaper than applying them.
MAX_CHANGES: Final = 50_000
# The changes of about 100,000 messages.
KEPT_CHANGES: Final = 200_000
_PRUNED_AT_ONCE: Final = 20_000
# Threads of memories are below those of files. Each memory is a thread of its own, so that no two are neighbours.
_MEMORY_THREADS: Final = 1 << 40


class ForwardRow(NamedTuple):
    """One chunk: its words as little-endian uint32 hashes, and its position among its neighbours.

    `thread` is the session, file or memory that contains it, `sequence` its place there. `audience` is who may find it,
    None if everybody may.
    """

    chunk_id: int
    thread: int
    sequence: int
    created_at: int
    role: str
    speaker: str | None
    words: bytes
    audience: str | None = None


_SELECT: Final = f"SELECT {select_list(ForwardRow)} FROM forward_index WHERE agent_id = :agent"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes to an agent's chunks after a position: chunk ids, ascending."""

    position: int
    added: list[int]
    vectors: list[int]
    gone: list[int]
    audiences: list[int]

    @property
    def any(self) -> bool:
        """Return whether there are any changes."""
        return bool(self.added or self.vectors or self.gone or self.audiences)


def thread_of(kind: str, row_id: int) -> int:
    """Return the thread of a file or memory; a session's thread is its row."""
    return -row_id if kind == "file" else -_MEMORY_THREADS - row_id


class ForwardIndex(AgentRepository):
    """The forward index of one agent within one transaction."""

    def position(self) -> int:
        """Return the position of the last change in the workspace, including changes that are no longer kept."""
        return int(self._value("SELECT seq FROM sqlite_sequence WHERE name = 'forward_changes'") or 0)

    def count(self) -> int:
        """Return how many chunks the agent has."""
        return int(self._value("SELECT count(*) FROM forward_index WHERE agent_id = :agent"))

    def any(self) -> bool:
        """Return whether the agent has chunks in this store."""
        return self._value("SELECT 1 FROM forward_index WHERE agent_id = :agent LIMIT 1") is not None

    def changes(self, after: int) -> Changes | None:
        """Return what changed after a position; None when there are too many changes, or they are no longer kept."""
        newest = max(after, self.position())  # another thread may have read a later state of the database
        if newest == after:  # most recalls find that nothing was stored since the one before
            return Changes(newest, [], [], [], [])
        oldest = self._value("SELECT min(seq) FROM forward_changes")
        if after + 1 < (newest + 1 if oldest is None else int(oldest)):
            return None
        rows = self._execute(
            "SELECT chunk_id, kind FROM forward_changes WHERE agent_id = :agent AND seq > :after"
            " ORDER BY seq LIMIT :limit",
            after=after,
            limit=MAX_CHANGES + 1,
        ).all()
        if len(rows) > MAX_CHANGES:
            return None
        found: dict[str, set[int]] = {"added": set(), "vector": set(), "gone": set(), "audience": set()}
        for chunk_id, kind in rows:
            found[kind].add(int(chunk_id))
            if kind == "added":  # an undo may have restored removed chunks
                found["gone"].discard(int(chunk_id))
        return Changes(
            position=newest,
            added=sorted(found["added"] - found["gone"]),
            vectors=sorted(found["vector"] - found["gone"]),
            gone=sorted(found["gone"]),
            audiences=sorted(found["audience"] - found["gone"] - found["added"]),
        )

    def rows(self) -> Iterator[list[ForwardRow]]:
        """Yield all chunks of the agent by id, in batches."""
        for batch in self._pages(f"{_SELECT} ORDER BY chunk_id", _BATCH):
            yield records_of(batch, ForwardRow, ForwardRow._fields)

    def rows_of(self, chunk_ids: Sequence[int]) -> list[ForwardRow]:
        """Return these chunks of the agent, by id."""
        sql = f"{_SELECT} AND chunk_id IN (SELECT value FROM json_each(:ids)) ORDER BY chunk_id"
        return self._records(ForwardRow, sql, ids=chunk_ids)

    def audiences_of(self, chunk_ids: Sequence[int]) -> dict[int, str | None]:
        """Return who may find each of these chunks of the agent."""
        rows = self._execute(
            "SELECT chunk_id, audience FROM forward_index WHERE agent_id = :agent"
            " AND chunk_id IN (SELECT value FROM json_each(:ids))",
            ids=chunk_ids,
        )
        return {int(row[0]): row[1] for row in rows}

    def vectors(self, model: str, dim: int) -> Iterator[tuple[list[int], bytes]]:
        """Yield the canonical vectors of a model in batches: the chunk ids, and their float32 rows concatenated.

        A damaged vector, which does not have the dimension of the model, is left out.
        """
        sql = (
            "SELECT f.chunk_id, v.embedding FROM forward_index AS f CROSS JOIN chunks_vec AS v"
            " ON v.chunk_id = f.chunk_id AND v.model = :model WHERE f.agent_id = :agent ORDER BY f.chunk_id"
        )
        for batch in self._pages(sql, _BATCH, model=model):
            yield _columns(batch, dim)

    def vectors_of(self, chunk_ids: Sequence[int], model: str, dim: int) -> tuple[list[int], bytes]:
        """Return the canonical vectors of the given chunks that have one, as `vectors` yields them."""
        found = self._execute(
            "SELECT chunk_id, embedding FROM chunks_vec AS v WHERE model = :model"
            " AND chunk_id IN (SELECT value FROM json_each(:ids))"
            " AND (SELECT agent_id FROM chunks WHERE id = v.chunk_id) = :agent ORDER BY chunk_id",
            ids=chunk_ids,
            model=model,
        ).all()
        return _columns(found, dim)


def prune_changes(connection: Connection) -> int:
    """Delete old changes but the newest `KEPT_CHANGES`, a bounded number at a time; returns how many.

    An index in memory that has not read them is rebuilt.
    """
    return execute(
        connection,
        "DELETE FROM forward_changes WHERE seq IN (SELECT seq FROM forward_changes WHERE seq <="
        " (SELECT max(seq) FROM forward_changes) - :kept ORDER BY seq LIMIT :step)",
        kept=KEPT_CHANGES,
        step=_PRUNED_AT_ONCE,
    ).rowcount


def largest_agents(connection: Connection, *, limit: int) -> list[tuple[str, int]]:
    """Return the agents of a workspace with the most chunks, and how many they have, for warming up their indexes."""
    rows = execute(
        connection,
        "SELECT agent_id, count(*) AS chunks FROM forward_index GROUP BY agent_id ORDER BY chunks DESC LIMIT :limit",
        limit=limit,
    )
    return [(str(row[0]), int(row[1])) for row in rows]


def _columns(rows: Sequence[Any], dim: int) -> tuple[list[int], bytes]:
    whole = [row for row in rows if is_vector(row[1], dim)]
    return [int(row[0]) for row in whole], b"".join(row[1] for row in whole)
