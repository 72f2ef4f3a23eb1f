"""Rebuilding an index: searchable throughout, true at the end, whatever is added or deleted between its steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

import pytest

from memory.upkeep.maintenance import optimize_stores
from storage import reindex as module
from storage.index import search_index as sqlite_index
from storage.maintenance import indexes_to_rebuild
from storage.postgres import search_index as postgres_index
from storage.reindex import reindex
from storage.verify import verify
from support.pipeline import Pipeline

Kind = Literal["text", "vector"]
KINDS: tuple[Kind, ...] = ("text", "vector")


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline with 25 sessions of one message each, and a rebuild that takes 10 chunks a step."""
    monkeypatch.setattr(module, "_BATCH", 10)
    pipe = Pipeline(tmp_path / "data")
    for number in range(25):
        pipe.say(f"zanzibar number {number}", session=f"s{number}")
    pipe.settle()
    yield pipe
    pipe.close()


def everything(pipe: Pipeline, kind: Kind) -> set[str]:
    mode = "keyword" if kind == "text" else "vector"
    return {memory.text for memory in pipe.recall("zanzibar", mode=mode, limit=100)}


def stored(pipe: Pipeline) -> set[str]:
    return set(chain.from_iterable(pipe.contents(f"s{number}") for number in range(60)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_rebuilt_and_says_how_far_it_is(pipe: Pipeline, kind: Kind) -> None:
    """Given 25 chunks, when an index is rebuilt, then progress ends at all of them and all are found."""
    seen: list[tuple[int, int]] = []
    assert reindex(pipe.store, kind, now=1, progress=lambda done, total: seen.append((done, total))) == 25
    # With the full text the words of each chunk are counted anew: that is as much again.
    words = [(50, 50)] if kind == "text" else []
    total = 50 if kind == "text" else 25
    assert seen == [(10, total), (20, total), (25, total), *words]
    assert everything(pipe, kind) == stored(pipe)
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_rebuilding_while_rows_come_and_go_keeps_search_true_at_every_step(pipe: Pipeline, kind: Kind) -> None:
    """Given deletions before and behind the mark and additions between steps, then search and store always agree."""
    changes = iter([("s1", "s24", "s25"), ("s2", "s15", "s26"), ("s3", "s16", "s27")])
    for _ in module._steps(pipe.store, kind, now=1):
        assert everything(pipe, kind) == stored(pipe)
        behind, ahead, new = next(changes)
        pipe.forget(behind)
        pipe.forget(ahead)
        pipe.say(f"zanzibar in {new}", session=new)
        pipe.settle()
        assert everything(pipe, kind) == stored(pipe)
    assert next(changes, None) is None, "there were three steps"
    assert everything(pipe, kind) == stored(pipe)
    assert len(stored(pipe)) == 22
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_rebuild_that_was_interrupted_goes_on_where_it_was(pipe: Pipeline, kind: Kind) -> None:
    """Given a rebuild killed after its first step, when it is run again, then only the rest is done."""
    interrupted = module._steps(pipe.store, kind, now=1)
    assert next(interrupted) == 10
    interrupted.close()
    pipe.forget("s3")
    assert everything(pipe, kind) == stored(pipe)
    assert verify(pipe.store).wrong == []

    assert reindex(pipe.store, kind, now=2) == 15
    assert everything(pipe, kind) == stored(pipe)
    assert pipe.count("indexes") == 2
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_that_rebuild_at_once_share_the_work_and_end(pipe: Pipeline, kind: Kind) -> None:
    """Given two rebuilds taking turns, when one finishes, then the other stops, and there is one index."""
    first, second = module._steps(pipe.store, kind, now=1), module._steps(pipe.store, kind, now=1)
    assert [next(first), next(second), next(first), next(second, None)] == [10, 10, 5, None]
    assert next(first, None) is None
    assert everything(pipe, kind) == stored(pipe)
    assert verify(pipe.store).wrong == []


def test_a_vector_that_comes_late_for_a_chunk_behind_the_mark_gets_into_both_indexes(pipe: Pipeline) -> None:
    """Given a chunk without a vector that the rebuild has passed, when its vector comes, then it is not missed."""
    pipe.say("zanzibar late", session="s30")
    pipe.ingest()
    pipe.chunk()
    pipe.say("zanzibar later", session="s31")
    pipe.ingest()
    pipe.chunk()
    with pipe.store.writing() as tx:  # the later of the two is embedded first
        claim = tx.work.claim("embed", now=pipe.now(), lease_seconds=1, limit=1)
    pipe.embed()
    pipe.index()
    steps = module._steps(pipe.store, "vector", now=1)
    next(steps)
    next(steps)
    assert claim is not None
    with pipe.store.writing() as tx:
        tx.work.release(claim)
    pipe.embed()
    pipe.index()
    list(steps)
    assert everything(pipe, "vector") == stored(pipe)
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_index_is_removed_in_steps_whatever_is_killed(
    pipe: Pipeline, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a kill right after an index was replaced, then nothing is wrong, and upkeep removes its rows in steps."""
    for tables in (sqlite_index, postgres_index):
        of_a_step = tables._ROWS_OF_A_STEP
        monkeypatch.setattr(tables, "_ROWS_OF_A_STEP", 2 if isinstance(of_a_step, int) else dict.fromkeys(of_a_step, 2))
    steps: list[bool] = []
    with pipe.store.reading() as tx:
        kind_of_index = type(tx.index)
    step = kind_of_index.remove_step
    with monkeypatch.context() as killed:
        killed.setattr(module, "remove_replaced", lambda *_, **__: None)
        reindex(pipe.store, kind, now=1)
    monkeypatch.setattr(kind_of_index, "remove_step", lambda self: steps.append(step(self)) or steps[-1])
    assert verify(pipe.store).wrong == []
    assert everything(pipe, kind) == stored(pipe)
    optimize_stores(pipe.stores, now=lambda: 1, recall_events_days=1.0)
    assert steps.count(True) >= 1
    with pipe.store.writing() as tx:
        assert not tx.index.remove_step()
    assert everything(pipe, kind) == stored(pipe)
    assert verify(pipe.store).wrong == []


def test_rebuilding_vectors_where_there_are_none_does_nothing(tmp_path: Path) -> None:
    """Given a workspace without a vector, when vectors are rebuilt, then 0 is said and nothing is made."""
    pipe = Pipeline(tmp_path / "data")
    assert reindex(pipe.store, "vector", now=1) == 0
    assert reindex(pipe.store, "text", now=1) == 0
    assert pipe.count("indexes") == 1
    pipe.close()


def test_a_full_text_index_that_is_lost_is_made_anew(pipe: Pipeline) -> None:
    """Given a store without a full-text index, when it is rebuilt as verify says, then words are found again."""
    with pipe.store.writing() as tx:
        generation = tx.index.active("text")
        assert generation is not None
        tx.index.drop(generation)
    assert any("reverie db reindex" in wrong for wrong in verify(pipe.store).wrong)
    assert reindex(pipe.store, "text", now=1) == 25
    assert everything(pipe, "text") == stored(pipe)
    assert verify(pipe.store).wrong == []


PARTS = {
    "text": ["", "_data", "_idx", "_docsize", "_config", "_insert", "_delete"],
    "vector": ["", "_info", "_chunks", "_rowids", "_vector_chunks00"],
}


@pytest.mark.sqlite("drops tables")
@pytest.mark.parametrize("by_upkeep", [False, True])
@pytest.mark.parametrize(("kind", "part"), [(kind, part) for kind in KINDS for part in PARTS[kind]])
def test_an_index_whose_tables_were_dropped_is_named_and_made_anew(
    pipe: Pipeline, kind: Kind, part: str, by_upkeep: bool
) -> None:
    """Given a table or trigger of an index that was dropped by hand, then verify names it, recall goes on, messages are
    chunked, and upkeep or a rebuild fills the index again."""
    with pipe.store.reading() as tx:
        generation = tx.index.active(kind)
    assert generation is not None
    with pipe.store.database.autocommit() as raw:
        dropped = "TRIGGER" if part in ("_insert", "_delete") else "TABLE"
        raw.execute(f"DROP {dropped} {generation.table}{part}")
    pipe.stores.close()  # an open connection may not have read the schema anew
    assert f"tables of the {kind} index are missing: run `reverie db reindex`" in verify(pipe.store).wrong
    assert everything(pipe, "vector") == everything(pipe, "text") == stored(pipe)
    pipe.say("zanzibar as always", session="s30")
    pipe.settle()
    assert everything(pipe, "vector") == everything(pipe, "text") == stored(pipe)
    if by_upkeep:
        optimize_stores(pipe.stores, now=lambda: 1, recall_events_days=1.0)
    else:
        reindex(pipe.store, kind, now=1)
    assert verify(pipe.store).wrong == []
    assert everything(pipe, "vector") == everything(pipe, "text") == stored(pipe)


@pytest.mark.sqlite("sqlite-vec leaves the room of deleted vectors empty")
def test_an_index_over_half_empty_is_found_and_rebuilt(pipe: Pipeline) -> None:
    """Given 320 vectors of which each tenth is kept, when asked, then the index is wasted, and not after a rebuild."""
    for number in range(32):
        pipe.say(*[f"passing thought {number} {part}" for part in range(9)], session="big")
        pipe.say(f"zanzibar thought {number}", session="s30")
    pipe.settle()
    assert indexes_to_rebuild(pipe.store) == []
    pipe.forget("big")
    assert indexes_to_rebuild(pipe.store) == ["vector"]
    reindex(pipe.store, "vector", now=1)
    assert indexes_to_rebuild(pipe.store) == []
    assert everything(pipe, "vector") == stored(pipe)
