"""Stores for timing recall: rows that the pipeline would have written, without queue, worker and model.

Each step is the own one of the product: repositories write messages, the chunker splits them, the indexes follow. Only
slow steps are skipped: embedding each text, and claiming rows that nobody else works on. A test compares such a store
with one that the pipeline made from the same messages. A large store can be kept in a folder, and is linked into the
data folder of a stack.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, to_blob
from adapters.embedders.record import build_embedder
from benchmarks.harness.made_up_talk import MadeUpTalk, Talk
from benchmarks.harness.progress import Progress
from benchmarks.harness.recall_process import Asked
from benchmarks.harness.stack import WORKSPACE
from memory.pipeline.chunking import cut
from memory.pipeline.incoming import DEFAULT_IMPORTANCE
from reverie.clock import new_id
from storage.index.search_index import VectorEntry
from storage.maintenance import optimize
from storage.pipeline.records import NewMessage
from storage.stores import Store, Stores
from storage.transaction import Transaction
from worker.model_specs import embedder_spec
from worker.settings import load_settings

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


def default_embedder() -> Embedder:
    """Load the embedder that is set, or the default one. Raises SystemExit when embedding is turned off."""
    embedder = build_embedder(embedder_spec(load_settings()))
    if embedder is None:
        raise SystemExit("this benchmark needs an embedder: unset REVERIE_EMBEDDING_PROVIDER")
    embedder.load()
    return embedder


# About as many chunks belong to one topic; more topics only take more time to embed.
_CHUNKS_A_TOPIC: Final = 200
_FEWEST_TOPICS: Final = 20
_MOST_TOPICS: Final = 5_000
# A store of this size is built in seconds; it is never kept, so that ingest may write to it.
_KEPT_FROM_CHUNKS: Final = 50_000


@dataclass(frozen=True, slots=True)
class BuiltStore:
    """A data folder with one workspace, and the questions for it."""

    folder: Path
    questions: list[Asked]

    def show(self, data: Path) -> None:
        """Link it into another data folder as its workspace, without a copy."""
        (data / "workspaces").mkdir(mode=0o700, exist_ok=True)
        (data / "workspaces" / WORKSPACE).symlink_to(self.folder / "workspaces" / WORKSPACE)

    def bytes_on_disk(self) -> int:
        """Return the size of the workspace on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters with which a kept store was built; one with other parameters is built again."""

    size: str
    seed: int
    model: str
    revision: int = 1  # increase it when the written data changes


@contextmanager
def built_store(
    size: StoreSize, embedder: Embedder, *, questions: int, seed: int, keep: Path | None, tell: Progress
) -> Iterator[BuiltStore]:
    """Build a store and remove it afterwards; with a folder `keep`, keep a large one and reuse it."""
    talk = MadeUpTalk(embedder.embed, topics=_topics(size), parts=size.agents, seed=seed)
    reusable = keep is not None and size.total >= _KEPT_FROM_CHUNKS
    folder = keep / str(size) if keep is not None and reusable else Path(mkdtemp(prefix="rvb-store-"))
    try:
        manifest = _Manifest(size=str(size), seed=seed, model=embedder.model)
        if not _is_there(folder, manifest):
            _build(folder, talk, size, embedder, manifest, tell)
        # With a random generator of its own, so that a kept store and a new one get the same questions.
        asking = MadeUpTalk(embedder.embed, topics=_topics(size), parts=size.agents, seed=seed)
        yield BuiltStore(folder, _questions(asking, size, questions, seed))
    finally:
        if not reusable:
            shutil.rmtree(folder, ignore_errors=True)


def _build(
    folder: Path, talk: MadeUpTalk, size: StoreSize, embedder: Embedder, manifest: _Manifest, tell: Progress
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    stores = Stores(folder)
    try:
        fill(stores.workspace(WORKSPACE), talk, size, Model(embedder.model, embedder.dimension), tell)
    finally:
        stores.close()
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def _is_there(folder: Path, manifest: _Manifest) -> bool:
    try:
        found = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=_Manifest)
    except (OSError, msgspec.DecodeError):
        return False
    return found == manifest


def _topics(size: StoreSize) -> int:
    """Return the number of topics of each agent."""
    return max(min(size.chunks // _CHUNKS_A_TOPIC, _MOST_TOPICS // size.agents), _FEWEST_TOPICS)


def _questions(talk: MadeUpTalk, size: StoreSize, count: int, seed: int) -> list[Asked]:
    """Return different questions to agents chosen at random."""
    chance = np.random.default_rng(seed)
    names = size.names
    found: dict[Asked, None] = {}
    while len(found) < count:
        part = int(chance.integers(size.agents))
        found[Asked(names[part], talk.question(part=part))] = None
    return list(found)
