"""Build a large store quickly: the rows that the pipeline would have written, without queue, worker and model.

Each step is the product's own: repositories write messages, the chunker splits them, the indexes follow. Only slow
steps are skipped: embedding each text, and claiming rows that nobody else works on. A test compares such a store with
one that the pipeline made from the same messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.made_up_talk import MadeUpTalk, Talk
from benchmarks.harness.progress import Progress
from memory.pipeline.chunking import cut
from memory.pipeline.embedding import to_blob
from memory.pipeline.incoming import DEFAULT_IMPORTANCE
from reverie.clock import new_id
from storage.pipeline.records import NewMessage
from storage.recall.generations import VectorEntry
from storage.stores import Store
from storage.transaction import Transaction
from storage.upkeep.maintenance import optimize

# Between 30 and 50 turns, 40 on average.
_SESSION_TURNS: Final = (30, 50)
# Chunks per transaction: a hundred times the cost of its commit, and a log of some 30 MB.
_TRANSACTION_CHUNKS: Final = 4_000
# 2023-01-01; a session starts each hour, a turn comes every 20 s.
_FIRST_MICROS: Final = 1_672_531_200_000_000
_SESSION_MICROS: Final = 3_600_000_000
_TURN_MICROS: Final = 20_000_000
_UPKEEP_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class StoreSize:
    """The number of agents, and of chunks for each of them. Written as 10000x100."""

    chunks: int
    agents: int = 1

    @classmethod
    def parse(cls, text: str) -> StoreSize:
        """Parse `CHUNKSxAGENTS` or `CHUNKS`. Raises ValueError: with the expected format."""
        chunks, _, agents = text.partition("x")
        try:
            size = cls(int(chunks), int(agents or 1))
        except ValueError:
            size = cls(0)
        if size.chunks < 1 or size.agents < 1:
            raise ValueError(f"{text!r} is not a store size: write CHUNKSxAGENTS, as in 10000x100")
        return size

    @property
    def total(self) -> int:
        """Return the number of chunks of all agents."""
        return self.chunks * self.agents

    @property
    def names(self) -> list[str]:
        """Return the names of the agents."""
        return [f"agent-{number}" for number in range(self.agents)]

    def __str__(self) -> str:
        """Return the size in its written form."""
        return f"{self.chunks}x{self.agents}"


@dataclass(frozen=True, slots=True)
class Model:
    """The model whose vectors a store has."""

    name: str
    dim: int


@dataclass(frozen=True, slots=True)
class _Session:
    """A session on its way into the store."""

    agent: str
    number: int
    talk: Talk


def fill(store: Store, talk: MadeUpTalk, size: StoreSize, model: Model, tell: Progress) -> None:
    """Fill an empty store, then do the daily upkeep: merge the full text, checkpoint the log."""
    done = 0
    for sessions in _batches(talk, size):
        with store.writing() as tx:
            if tx.index.active("vector") is None:
                tx.index.create("vector", now=_FIRST_MICROS, model=model.name, dim=model.dim, active=True)
            done += write_sessions(tx, sessions, model)
        tell(f"store of {size}: {done:,} of {size.total:,} chunks")
    optimize(store, now=_FIRST_MICROS, budget_seconds=_UPKEEP_SECONDS)


def write_sessions(tx: Transaction, sessions: Sequence[_Session], model: Model) -> int:
    """Write sessions whose turns are one chunk each, searchable by words and by vector. Return the number of chunks."""
    first_row = _highest(tx, "messages") + 1
    now = _FIRST_MICROS
    for session in sessions:
        _write_messages(tx, session)
    rows = range(first_row, _highest(tx, "messages") + 1)
    first_chunk = _highest(tx, "chunks") + 1
    tx.chunks.add_message_chunks([(source, cut(source)) for source in tx.chunks.sources("message", rows)], now=now)
    tx.chunks.mark_chunked("message", rows, now=now)
    chunks = range(first_chunk, _highest(tx, "chunks") + 1)
    if len(chunks) != len(rows):
        raise RuntimeError(f"{len(rows)} synthetic turns became {len(chunks)} chunks: each should be one")
    vectors = np.concatenate([session.talk.vectors for session in sessions])
    agents = [session.agent for session in sessions for _ in session.talk.texts]
    _write_vectors(tx, chunks, agents, vectors, model)
    return len(chunks)


def _write_messages(tx: Transaction, session: _Session) -> None:
    rows = tx.for_agent(session.agent)
    began = _FIRST_MICROS + session.number * _SESSION_MICROS
    record = rows.sessions.ensure(f"session-{session.number}", now=began)
    numbered = [
        (place + 1, _message(session, place, text, began + place * _TURN_MICROS))
        for place, text in enumerate(session.talk.texts)
    ]
    rows.messages.insert(record.row_id, numbered, now=began)
    rows.sessions.touch(record.row_id, now=numbered[-1][1].created_at, last_sequence=len(numbered))


def _message(session: _Session, place: int, text: str, at: int) -> NewMessage:
    role = "assistant" if place % 2 else "user"
    message_id = new_id()
    return NewMessage(
        id=message_id,
        agent=session.agent,
        role=role,
        name=session.talk.speakers[place % 2],
        content=text,
        tool_call_id=None,
        tool_name=None,
        tool_calls=None,
        token_count=None,
        importance=DEFAULT_IMPORTANCE[role],
        tags="[]",
        metadata="{}",
        trace=message_id,
        created_at=at,
        accepted_at=at,
    )


def _write_vectors(
    tx: Transaction, chunks: Sequence[int], agents: Sequence[str], vectors: NDArray[np.float32], model: Model
) -> None:
    blobs = [to_blob(vector) for vector in vectors]
    tx.chunks.store_vectors(model.name, model.dim, list(zip(chunks, blobs, strict=True)), now=_FIRST_MICROS)
    tx.index.add_vectors([VectorEntry(*entry) for entry in zip(chunks, agents, blobs, strict=True)])
    tx.chunks.mark_indexed(chunks, now=_FIRST_MICROS)


def _batches(talk: MadeUpTalk, size: StoreSize) -> Iterator[list[_Session]]:
    """Yield the sessions of all agents, some thousand chunks at a time."""
    batch: list[_Session] = []
    waiting = 0
    for part, agent in enumerate(size.names):
        left, number = size.chunks, 0
        while left:
            turns = min(left, _SESSION_TURNS[0] + number * 7 % (_SESSION_TURNS[1] - _SESSION_TURNS[0] + 1))
            batch.append(_Session(agent, number, talk.session(turns, part=part)))
            left, number, waiting = left - turns, number + 1, waiting + turns
            if waiting >= _TRANSACTION_CHUNKS:
                yield batch
                batch, waiting = [], 0
    if batch:
        yield batch


def _highest(tx: Transaction, table: str) -> int:
    """Return the highest id ever assigned in a table with AUTOINCREMENT."""
    found = tx.connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).scalar()
    return int(found or 0)
