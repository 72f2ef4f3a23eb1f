"""Consolidation with the real model and the real pipeline: which of what people say becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adapters.embedders.base import Embedder, EmbedderSpec
from adapters.embedders.record import build_embedder
from memory.jobs import run_on_store
from memory.upkeep.consolidation import consolidate
from reverie import contract
from storage.memories.records import NewMemory
from support.kept import DEFAULT_POLICY
from support.pipeline import Pipeline

# Each line says the same.
PARAPHRASES = (
    ("I like tea", "I like tea.", "i like tea"),
    ("The user prefers dark mode in all editors", "User prefers dark mode in every editor"),
    ("My sister Anna lives in Lisbon", "My sister Anna is living in Lisbon"),
    ("The user doesn't eat meat", "The user does not eat meat"),
    ("The tests must pass before a merge", "Tests must pass before merging"),
    ("The user prefers green tea in the morning.", "In the morning the user prefers green tea."),
)
# No two say the same, although the model puts most of these pairs above .95.
APART = (
    ("Anna's code is 17", "Ben's code is 18"),
    ("The flight from Rome to Paris is booked", "The flight from Paris to Rome is booked"),
    ("The user prefers tea over coffee", "The user prefers coffee over tea"),
    ("The key is on the left shelf of the server room", "The key is on the right shelf of the server room"),
    ("The build of release 2.3.1 failed on a certificate", "The build of release 2.3.2 failed on a certificate"),
    ("A change must pass review", "A change must never pass review"),
    ("Carla owes Dave money", "Dave owes Carla money"),
    ("The meeting is on Monday at 10", "The meeting is on Tuesday at 10"),
)


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    """The default model."""
    embedder = build_embedder(EmbedderSpec(device="cpu"))
    assert embedder is not None
    embedder.load()
    return embedder


@pytest.fixture
def pipeline(tmp_path: Path, minilm: Embedder) -> Iterator[Pipeline]:
    """A workspace whose chunks get the real vectors."""
    one = Pipeline(tmp_path, embedder=minilm)
    yield one
    one.close()


def keep(pipeline: Pipeline, texts: list[str]) -> None:
    with pipeline.store.writing() as tx:
        for number, text in enumerate(texts):
            at = pipeline.now() + number
            tx.for_agent("ana").memories.add(NewMemory(id=f"m{number}", content=text, created_at=at), now=at)
    pipeline.chunk()
    pipeline.embed()


def consolidated(pipeline: Pipeline) -> dict[str, int]:
    report = run_on_store(
        pipeline.store,
        contract.CONSOLIDATE_MEMORIES,
        lambda run: consolidate(run, DEFAULT_POLICY, pipeline.stores),
        now=pipeline.now(),
    )
    return {name: count for name, count in report.counts.items() if count}


def test_paraphrases_become_one(pipeline: Pipeline) -> None:
    """Given the same said in two or three ways, when the job runs, then the first way of each is left."""
    texts = [text for line in PARAPHRASES for text in line]
    keep(pipeline, texts)

    assert consolidated(pipeline) == {"looked_at": len(texts), "merged": len(texts) - len(PARAPHRASES)}
    with pipeline.store.reading() as tx:
        left = {memory.content for memory in tx.for_agent("ana").memories.iterate()}
    assert left == {line[0] for line in PARAPHRASES}


def test_what_differs_in_what_matters_stays(pipeline: Pipeline, minilm: Embedder) -> None:
    """Given pairs that the model hardly tells apart, when the job runs, then all of them are left."""
    texts = [text for pair in APART for text in pair]
    vectors = minilm.embed(texts)
    cosines = np.einsum("ij,ij->i", vectors[::2], vectors[1::2])
    assert sum(cosines > DEFAULT_POLICY.duplicate_similarity) >= 6  # the guard is what keeps them apart
    keep(pipeline, texts)

    assert consolidated(pipeline) == {"looked_at": len(texts)}
