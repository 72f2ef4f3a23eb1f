"""The forward index: for each chunk of an agent its words, its place and who said it, and what changed since.

An index in memory (`retrieval.agent_index`) is made from these rows and from the canonical vectors. It notes the
position that it has read up to and afterwards takes up only what came later. Everything here is one agent's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

# Rows read at a time: a few megabytes of vectors.
_BATCH: Final = 2_048
# More changes than this are not taken up one by one; reading everything again is cheaper.
MAX_CHANGES: Final = 50_000
# Those of some 100,000 messages.
KEPT_CHANGES: Final = 200_000
_PRUNED_AT_ONCE: Final = 20_000
# Below the threads of files: each memory is a thread of its own, so that none stands beside another.
_MEMORY_THREADS: Final = 1 << 40
_COLUMNS: Final = "chunk_id, thread, sequence, created_at, role, speaker, words"


class ForwardRow(NamedTuple):
    """One chunk: its words as little-endian uint32 hashes, and where it stands among its neighbours.

    `thread` is what has neighbours (a session, a file, a memory), `sequence` the place in it.
    """

    chunk_id: int
    thread: int
    sequence: int
    created_at: int
    role: str
    speaker: str | None
    words: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of an agent's chunks after a position, each list in the order of the ids."""

    position: int
    added: list[int]
    vectors: list[int]
    gone: list[int]

    @property
    def any(self) -> bool:
        """Whether there is anything to take up."""
        return bool(self.added or self.vectors or self.gone)


def thread_of(kind: str, row_id: int) -> int:
    """The thread of a file or of a memory; a session's is its row."""
    return -row_id if kind == "file" else -_MEMORY_THREADS - row_id


class ForwardIndex:
    """The forward index of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def position(self) -> int:
        """How far the changes of the whole workspace have come, those included that are no longer kept."""
        given = self._connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = 'forward_changes'"))
        return int(given.scalar() or 0)

    def count(self) -> int:
        """How many chunks the agent has."""
        found = self._connection.execute(
            text("SELECT count(*) FROM forward_index WHERE agent_id = :agent"), {"agent": self._agent}
        )
        return int(found.scalar_one())

    def any(self) -> bool:
        """Whether the agent has chunks here: one short look."""
        found = self._connection.execute(
            text("SELECT 1 FROM forward_index WHERE agent_id = :agent LIMIT 1"), {"agent": self._agent}
        )
        return found.scalar() is not None

    def changes(self, after: int) -> Changes | None:
        """What changed after a position; None when it is too much, or no longer known, to be told one by one."""
        newest = max(after, self.position())  # another thread may have read a later state of the database
        oldest = self._connection.execute(text("SELECT min(seq) FROM forward_changes")).scalar()
        if after + 1 < (newest + 1 if oldest is None else int(oldest)):
            return None
        rows = self._connection.execute(
            text(
                "SELECT chunk_id, kind FROM forward_changes WHERE agent_id = :agent AND seq > :after"
                " ORDER BY seq LIMIT :limit"
            ),
            {"agent": self._agent, "after": after, "limit": MAX_CHANGES + 1},
        ).all()
        if len(rows) > MAX_CHANGES:
            return None
        found: dict[str, set[int]] = {"added": set(), "vector": set(), "gone": set()}
        for chunk_id, kind in rows:
            found[kind].add(int(chunk_id))
            if kind == "added":  # an undo brings back what was gone
                found["gone"].discard(int(chunk_id))
        return Changes(
            position=newest,
            added=sorted(found["added"] - found["gone"]),
            vectors=sorted(found["vector"] - found["gone"]),
            gone=sorted(found["gone"]),
        )

    def rows(self) -> Iterator[list[ForwardRow]]:
        """All chunks of the agent by id, in batches."""
        found = self._connection.execute(
            text(f"SELECT {_COLUMNS} FROM forward_index WHERE agent_id = :agent ORDER BY chunk_id"),
            {"agent": self._agent},
        )
        for batch in found.partitions(_BATCH):
            yield [ForwardRow._make(row) for row in batch]

    def rows_of(self, chunk_ids: Sequence[int]) -> list[ForwardRow]:
        """These chunks of the agent, by id."""
        found = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} FROM forward_index WHERE agent_id = :agent"
                " AND chunk_id IN (SELECT value FROM json_each(:ids)) ORDER BY chunk_id"
            ),
            {"agent": self._agent, "ids": json.dumps(list(chunk_ids))},
        )
        return [ForwardRow._make(row) for row in found]

    def vectors(self, model: str) -> Iterator[tuple[list[int], bytes]]:
        """The canonical vectors of one model in batches: the chunks' ids, and their float32 rows one after another."""
        found = self._connection.execute(
            text(
                "SELECT f.chunk_id, v.embedding FROM forward_index AS f CROSS JOIN chunks_vec AS v"
                " ON v.chunk_id = f.chunk_id AND v.model = :model WHERE f.agent_id = :agent ORDER BY f.chunk_id"
            ),
            {"agent": self._agent, "model": model},
        )
        for batch in found.partitions(_BATCH):
            yield _columns(batch)

    def vectors_of(self, chunk_ids: Sequence[int], model: str) -> tuple[list[int], bytes]:
        """The canonical vectors of these chunks as far as they have one."""
        found = self._connection.execute(
            text(
                "SELECT v.chunk_id, v.embedding FROM json_each(:ids) AS j CROSS JOIN chunks_vec AS v"
                " ON v.chunk_id = j.value AND v.model = :model CROSS JOIN chunks AS c"
                " ON c.id = v.chunk_id AND c.agent_id = :agent ORDER BY v.chunk_id"
            ),
            {"agent": self._agent, "ids": json.dumps(list(chunk_ids)), "model": model},
        ).all()
        return _columns(found)


def prune_changes(connection: Connection) -> int:
    """Remove the oldest changes beyond the newest `KEPT_CHANGES`, a bounded step of them; how many.

    An index in memory that has not been asked for so long is made anew.
    """
    removed = connection.execute(
        text(
            "DELETE FROM forward_changes WHERE seq IN (SELECT seq FROM forward_changes WHERE seq <="
            " (SELECT max(seq) FROM forward_changes) - :kept ORDER BY seq LIMIT :step)"
        ),
        {"kept": KEPT_CHANGES, "step": _PRUNED_AT_ONCE},
    )
    return int(removed.rowcount)


def largest_agents(connection: Connection, *, limit: int) -> list[tuple[str, int]]:
    """The agents of a workspace with the most chunks, and how many they have: to make ready what they will ask for."""
    rows = connection.execute(
        text(
            "SELECT agent_id, count(*) AS chunks FROM forward_index GROUP BY agent_id ORDER BY chunks DESC LIMIT :limit"
        ),
        {"limit": limit},
    )
    return [(str(row[0]), int(row[1])) for row in rows]


def _columns(rows: Sequence[Any]) -> tuple[list[int], bytes]:
    return [int(row[0]) for row in rows], b"".join(row[1] for row in rows)
