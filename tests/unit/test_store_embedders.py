"""Each workspace is searched and filled with the embedder that made its vectors, and a change is seen at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.embedders.base import Embedder, EmbedderSpec, EmbedderUnavailable, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.record import EmbedderRecord, RevisedEmbedder, recorded_embedder
from storage.index.search_index import Generation
from support.pipeline import Pipeline
from worker import runtime
from worker.runtime import StoreEmbedders

SETTINGS = EmbedderSpec(provider="hash", api_key="s3cret", timeout_seconds=7)


class Model(HashEmbedder):
    """A model of any name that says when it is loaded."""

    def __init__(self, name: str, *, broken: bool = False) -> None:
        self.model = name  # type: ignore[misc]
        self.broken = broken
        self.loaded = threading.Event()

    def load(self) -> None:
        self.loaded.set()
        if self.broken:
            raise EmbedderUnavailable("no such folder")


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace without any vector."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """The embedders that were made from records, in order."""
    models: list[Model] = []

    def make(record: EmbedderRecord, settings: EmbedderSpec, configured: Embedder | None) -> Embedder:
        models.append(Model(record.name, broken=record.model == "broken"))
        return models[-1]

    monkeypatch.setattr(runtime, "recorded_embedder", make)
    return models


def configured() -> GuardedEmbedder:
    return GuardedEmbedder(HashEmbedder())


def record(model: str, **more: int) -> str:
    return EmbedderRecord(provider="sentence-transformers", model=model, dimension=64, **more).encode()


def index(pipe: Pipeline, model: str, written: str = "", *, active: bool = True) -> Generation:
    with pipe.store.writing() as tx:
        return tx.index.create("vector", now=1, model=model, dim=64, embedder=written, active=active)


def test_a_workspace_without_vectors_or_with_those_of_the_settings_uses_the_settings(
    pipe: Pipeline, made: list[Model]
) -> None:
    """Given no index, or one of the configured model, with or without a record, then no other embedder is made."""
    ours = configured()
    embedders = StoreEmbedders(SETTINGS, ours)
    assert embedders.for_store(pipe.store) is ours
    index(pipe, "hash-64", record("hash-64"))
    assert embedders.for_store(pipe.store) is ours
    assert made == []


def test_a_workspace_of_another_model_uses_the_one_that_it_tells_of(pipe: Pipeline, made: list[Model]) -> None:
    """Given an index of another model with its record, then that embedder is made once and loaded by nobody yet."""
    embedders = StoreEmbedders(SETTINGS, configured())
    index(pipe, "other", record("other"))
    found = embedders.for_store(pipe.store)
    assert found is not None
    assert found.inner is made[0]
    assert embedders.for_store(pipe.store) is found
    assert (len(made), made[0].loaded.is_set()) == (1, False)


def test_the_next_model_is_loaded_while_the_old_one_is_searched_and_used_after_the_switch(
    pipe: Pipeline, made: list[Model]
) -> None:
    """Given a change that goes on, then the next model loads in the background, and is used once it is complete."""
    ours = configured()
    embedders = StoreEmbedders(SETTINGS, ours)
    index(pipe, "hash-64")
    target = index(pipe, "next", record("next"), active=False)
    assert embedders.for_store(pipe.store) is ours
    assert made[0].loaded.wait(60)
    assert embedders.for_store(pipe.store) is ours
    with pipe.store.writing() as tx:
        tx.index.promote(target)
    found = embedders.for_store(pipe.store)
    assert found is not None
    assert (found.inner, len(made)) == (made[0], 1)


def test_a_next_model_that_cannot_be_loaded_here_disturbs_nobody(pipe: Pipeline, made: list[Model]) -> None:
    """Given a change to a model whose files are not here, then the old one is searched as before."""
    ours = configured()
    embedders = StoreEmbedders(SETTINGS, ours)
    index(pipe, "hash-64")
    index(pipe, "broken", record("broken"), active=False)
    assert embedders.for_store(pipe.store) is ours
    assert made[0].loaded.wait(60)
    assert embedders.for_store(pipe.store) is ours


def test_what_cannot_be_made_leaves_the_configured_one(pipe: Pipeline) -> None:
    """Given an index of another model and no record, or one of a newer version, then recall finds that it differs."""
    ours = configured()
    embedders = StoreEmbedders(SETTINGS, ours)
    other = index(pipe, "other")
    assert embedders.for_store(pipe.store) is ours
    with pipe.store.writing() as tx:
        tx.index.drop(other)
        tx.index.create("vector", now=1, model="other", dim=64, embedder='{"provider": "crystal"}', active=True)
    assert embedders.for_store(pipe.store) is ours


def test_settings_without_an_embedder_hold_for_every_workspace(pipe: Pipeline, made: list[Model]) -> None:
    """Given the provider none, then a workspace with vectors gets no embedder either."""
    index(pipe, "other", record("other"))
    assert StoreEmbedders(EmbedderSpec(provider="none"), None).for_store(pipe.store) is None
    assert made == []


def test_only_so_many_models_are_kept(tmp_path: Path, made: list[Model]) -> None:
    """Given six workspaces of six models, then the first has to be made again, the last not."""
    pipe = Pipeline(tmp_path / "data")
    embedders = StoreEmbedders(SETTINGS, configured())
    stores = [pipe.stores.workspace(f"w{number}") for number in range(6)]
    for number, store in enumerate(stores):
        with store.writing() as tx:
            tx.index.create("vector", now=1, model=f"m{number}", dim=64, embedder=record(f"m{number}"), active=True)
        embedders.for_store(store)
    embedders.for_store(stores[5])
    assert len(made) == 6
    embedders.for_store(stores[0])
    assert len(made) == 7
    pipe.close()


def test_a_record_holds_no_secret_and_takes_the_rest_from_the_settings() -> None:
    """Given an endpoint's embedder, when it is written and read, then its spec is whole and its record has no key."""
    spec = EmbedderSpec(provider="openai", model="m", base_url="http://here/v1", api_key="s3cret", dimension=8)
    embedder = HashEmbedder()
    written = EmbedderRecord.from_embedder(spec, embedder).encode()
    assert "s3cret" not in written
    read = EmbedderRecord.decode(written)
    assert read is not None
    made_from = read.spec(replace(SETTINGS, base_url="http://here/v1"))
    assert (made_from.provider, made_from.base_url, made_from.dimension) == ("openai", "http://here/v1", 64)
    assert (made_from.api_key, made_from.timeout_seconds) == ("s3cret", 7)


@pytest.mark.parametrize("written", ["", "{", "[]", '{"provider": "crystal", "model": "m", "dimension": 3}'])
def test_what_is_no_record_is_none(written: str) -> None:
    """Given an empty text, broken JSON or an unknown provider, then there is no record."""
    assert EmbedderRecord.decode(written) is None


def test_a_revision_shares_the_model_of_the_settings() -> None:
    """Given a revision of the configured model, then the loaded one is used under the name of the revision."""
    ours = HashEmbedder()
    again = EmbedderRecord(provider="hash", model="hash-64", dimension=64, revision=2)
    found = recorded_embedder(again, SETTINGS, ours)
    assert isinstance(found, RevisedEmbedder)
    found.load()
    assert (found.inner, found.model, found.dimension, found.device, found.dtype) == (
        ours,
        "hash-64@2",
        64,
        "cpu",
        "float32",
    )
    assert (found.embed(["a"])[0] == ours.embed_query("a")).all()
    assert (found.embed_query("a") == ours.embed_query("a")).all()


def test_an_embedder_that_cannot_be_made_from_its_record_is_none() -> None:
    """Given an endpoint's record without its address, then there is no embedder."""
    assert recorded_embedder(EmbedderRecord(provider="openai", model="m", dimension=3), SETTINGS, None) is None
