# mypy: disable-error-code="import-not-found,import-untyped"
"""Measure how fast another memory system stores and finds turns. Runs on the peers' own Python, without Reverie.

    python measure.py PEER --texts TEXTS.json --model FOLDER --work FOLDER --output RESULT.json [--queries QUERIES.json]

Each is used as documented, with the same model files in float32, its default; no network is needed. The model is loaded
and used once before the measurement starts. The first few queries are for warming up.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

BATCH = 100
RESULTS = 10
WARM_QUERIES = 10
WARM_UP = ["a first text that makes the model load", "and a second one"]

Add = Callable[[list[str]], None]


class Peer(NamedTuple):
    """Interface to another memory system: store texts, and return the number of results for a query."""

    add: Add
    search: Callable[[str], int]
    keep: Any = None  # closed at the end of the process


def txtai_hybrid(model: str, work: Path) -> Peer:
    """txtai, hybrid (vectors and words) with stored texts, all in one batch."""
    from txtai import Embeddings

    del work
    models: dict[str, Any] = {}
    Embeddings(path=model, hybrid=True, content=True, models=models).index(WARM_UP)
    embeddings = Embeddings(path=model, hybrid=True, content=True, models=models)

    def add(texts: list[str]) -> None:
        embeddings.index(texts)

    return Peer(add, lambda query: len(embeddings.search(query, RESULTS)))


def chromadb_batches(model: str, work: Path, *, batch: int = BATCH) -> Peer:
    """Chroma on disk, in batches of 100."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(work / "chroma"), settings=Settings(anonymized_telemetry=False))
    encode = _encoder(model)
    collection = client.create_collection("turns", embedding_function=None)

    def add(texts: list[str]) -> None:
        for start, part in _batches(texts, batch):
            ids = [str(start + offset) for offset in range(len(part))]
            collection.add(ids=ids, documents=part, embeddings=encode(part))

    def search(query: str) -> int:
        return len(collection.query(query_embeddings=encode([query]), n_results=RESULTS)["ids"][0])

    return Peer(add, search)


def langgraph_batches(model: str, work: Path, *, batch: int = BATCH) -> Peer:
    """LangGraph's SqliteStore with a vector index, in batches of 100."""
    import pysqlite3

    # The system's sqlite3 may be built without extensions, which this store needs for sqlite-vec.
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
    from langgraph.store.base import PutOp
    from langgraph.store.sqlite import SqliteStore

    encode = _encoder(model)
    index = {"dims": len(encode(WARM_UP)[0]), "embed": encode, "fields": ["text"]}
    manager = SqliteStore.from_conn_string(str(work / "langgraph.db"), index=index)
    store = manager.__enter__()
    store.setup()

    def add(texts: list[str]) -> None:
        for start, part in _batches(texts, batch):
            store.batch([PutOp(("bench",), str(start + offset), {"text": text}) for offset, text in enumerate(part)])

    return Peer(add, lambda query: len(store.search(("bench",), query=query, limit=RESULTS)), keep=manager)


def langgraph_single(model: str, work: Path) -> Peer:
    """LangGraph's SqliteStore, one `put` for each turn."""
    return langgraph_batches(model, work, batch=1)


def chromadb_single(model: str, work: Path) -> Peer:
    """Chroma on disk, one by one."""
    return chromadb_batches(model, work, batch=1)


def mem0_single(model: str, work: Path) -> Peer:
    """mem0 without a language model (`infer=False`), local Qdrant on disk, one by one: it has no batch call."""
    os.environ.setdefault("OPENAI_API_KEY", "none")  # required by the constructor, never used
    from mem0 import Memory

    store = {"path": str(work / "qdrant"), "collection_name": "turns", "embedding_model_dims": 384, "on_disk": True}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "embedder": {"provider": "huggingface", "config": {"model": model, "embedding_dims": 384}},
            "history_db_path": str(work / "history.db"),
        }
    )
    memory.embedding_model.embed(WARM_UP[0])

    def add(texts: list[str]) -> None:
        for text in texts:
            memory.add([{"role": "user", "content": text}], user_id="bench", infer=False)

    def search(query: str) -> int:
        return len(memory.search(query, filters={"user_id": "bench"}, top_k=RESULTS)["results"])

    return Peer(add, search)


PEERS: dict[str, tuple[Callable[[str, Path], Peer], str]] = {
    "txtai": (txtai_hybrid, "txtai"),
    "chromadb_batch": (chromadb_batches, "chromadb"),
    "chromadb_single": (chromadb_single, "chromadb"),
    "langgraph_batch": (langgraph_batches, "langgraph-checkpoint-sqlite"),
    "langgraph_single": (langgraph_single, "langgraph-checkpoint-sqlite"),
    "mem0": (mem0_single, "mem0ai"),
}


def main() -> None:
    """Measure one peer and write the result."""
    parser = argparse.ArgumentParser(description="How fast another memory takes up turns, and finds them.")
    parser.add_argument("peer", choices=sorted(PEERS))
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--queries", type=Path, help="also search for these, once everything is stored")
    options = parser.parse_args()
    texts = json.loads(options.texts.read_text(encoding="utf-8"))
    make, package = PEERS[options.peer]
    memory = make(options.model, options.work)
    started = time.perf_counter()
    memory.add(texts)
    seconds = time.perf_counter() - started
    found: dict[str, Any] = {
        "messages": len(texts),
        "seconds": seconds,
        "messages_per_second": len(texts) / seconds,
        "package": f"{package} {metadata.version(package)}",
    }
    if options.queries is not None:
        found["search_seconds"] = search_seconds(memory, json.loads(options.queries.read_text(encoding="utf-8")))
    options.output.write_text(json.dumps(found), encoding="utf-8")


def search_seconds(memory: Peer, queries: list[str]) -> list[float]:
    """Return the seconds of each search, including query embedding. Raises RuntimeError: if one finds nothing."""
    for query in queries[:WARM_QUERIES]:
        memory.search(query)
    seconds = []
    for query in queries:
        started = time.perf_counter()
        results = memory.search(query)
        seconds.append(time.perf_counter() - started)
        if not results:
            raise RuntimeError("a search found nothing, so its time is meaningless")
    return seconds


def _encoder(model: str) -> Callable[[list[str]], list[Any]]:
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(model, device="cpu", local_files_only=True)
    loaded.encode(WARM_UP, show_progress_bar=False)

    def encode(texts: list[str]) -> list[Any]:
        vectors: list[Any] = loaded.encode(texts, batch_size=32, show_progress_bar=False).tolist()
        return vectors

    return encode


def _batches(texts: list[str], size: int) -> Iterator[tuple[int, list[str]]]:
    for start in range(0, len(texts), size):
        yield start, texts[start : start + size]


if __name__ == "__main__":
    main()
