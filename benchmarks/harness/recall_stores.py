"""The stores for timing recall: built once, in a folder of their own, and linked into a stack's data folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import msgspec
import numpy as np

from adapters.embedders.base import Embedder
from benchmarks.harness.big_store import Model, StoreSize, fill
from benchmarks.harness.made_up_talk import MadeUpTalk
from benchmarks.harness.progress import Progress
from benchmarks.harness.stack import WORKSPACE
from benchmarks.harness.timed import Asked
from storage.stores import Stores

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

    def texts(self) -> list[str]:
        """Return the text of each chunk, as the peers get them."""
        stores = Stores(self.folder)
        try:
            with stores.workspace(WORKSPACE, create=False).reading() as tx:
                return [str(text) for text in tx.connection.exec_driver_sql("SELECT text FROM chunks").scalars()]
        finally:
            stores.close()


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
