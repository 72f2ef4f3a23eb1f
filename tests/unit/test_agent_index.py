"""An updated in-memory index equals a rebuilt one, whatever came in between; snapshots never change."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from adapters.embedders.base import HashEmbedder
from retrieval.index import agent_index
from retrieval.index.agent_index import AgentIndex, IndexSnapshot
from retrieval.ranking import retrievers
from storage.index import forward
from storage.index.forward import ForwardIndex, prune_changes
from storage.recall.words import hash_of, hashes_of
from storage.transaction import Transaction
from support.pipeline import Pipeline

VOCABULARY = [
    "harbour",
    "boats",
    "violin",
    "strings",
    "garden",
    "tomatoes",
    "winter",
    "coat",
    "train",
    "東京都",
    "café",
]
WORDS = sorted({int(word) for word in hashes_of(" ".join(VOCABULARY))})


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace, with the deterministic embedder."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


class Kept:
    """One index that is kept from ask to ask, as a server keeps it."""

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe
        self.index: AgentIndex | None = None
        self.made = 0

    def snapshot(self, agent: str = "ana") -> IndexSnapshot:
        """The index brought up to date, made anew where it asks for that."""
        with self.pipe.store.reading() as tx:
            generation = tx.index.active("vector")
            if self.index is not None and self.index.generation == generation:
                snapshot = self.index.current(tx.for_agent(agent).forward)
                if snapshot is not None:
                    return snapshot
            self.made += 1
            self.index = AgentIndex(generation)
            return made_whole(self.index, tx, agent)

    def fresh(self, agent: str = "ana") -> IndexSnapshot:
        with self.pipe.store.reading() as tx:
            return made_whole(AgentIndex(tx.index.active("vector")), tx, agent)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_index_is_as_one_made_from_nothing(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Given any sequence of messages, files, late vectors and deletions, then each snapshot equals that of a new index.

    And no snapshot that was given out earlier has changed by the end.
    """
    monkeypatch.setattr(agent_index, "_MAX_DELETED_SHARE", 0.6 if seed % 2 else 0.1)
    chance, kept = random.Random(seed), Kept(pipe)
    snapshots: list[tuple[IndexSnapshot, dict[str, Any]]] = []
    for step in range(24):
        happen(pipe, chance, step)
        if chance.random() < 0.6:
            snapshot = kept.snapshot()
            assert_same(snapshot, kept.fresh())
            snapshots.append((snapshot, content_of(snapshot)))
    for snapshot, as_given in snapshots:
        assert content_of(snapshot) == as_given


def test_changes_are_taken_up_and_not_read_from_nothing(pipe: Pipeline) -> None:
    """Given an index, when messages come out of order in two sessions and a file, then it is not made anew."""
    pipe.say(*[f"harbour boats {number}" for number in range(30)], {"content": "garden", "sequence": 500})
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    pipe.say({"content": "late violin", "sequence": 400}, {"content": "later violin", "sequence": 450})
    pipe.say("violin elsewhere", session="t")
    pipe.hand_in("file:///a", "tomatoes in the garden", session="s")
    pipe.ingest()
    pipe.chunk()
    words_only = kept.snapshot()
    assert_same(words_only, kept.fresh())
    assert np.count_nonzero(words_only.embedded) == 31
    pipe.settle()
    assert np.count_nonzero(kept.snapshot().embedded) == 35
    assert np.count_nonzero(words_only.embedded) == 31
    assert_same(kept.snapshot(), kept.fresh())
    assert kept.made == 1


def test_nothing_new_gives_the_very_same_view(pipe: Pipeline) -> None:
    pipe.say("harbour")
    pipe.settle()
    kept = Kept(pipe)
    snapshot = kept.snapshot()
    pipe.say("not of ana", agent="bob")
    pipe.settle()
    assert kept.snapshot() is snapshot


def test_the_counts_of_what_was_forgotten_count_no_longer(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a forgotten session of many `harbour`, when the index keeps its rows, then scores are as of a new one."""
    monkeypatch.setattr(agent_index, "_MAX_DELETED_SHARE", 0.9)
    pipe.say(*[f"harbour {number}" for number in range(20)], session="gone", user="u")
    pipe.say({"content": "harbour and boats", "name": "Ada"}, {"content": "violin", "name": "Ben"}, "garden")
    pipe.say({"content": "coat", "name": "Zoe"}, session="gone")
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    pipe.forget("gone")
    snapshot = kept.snapshot()
    assert (kept.made, snapshot.rows, len(snapshot.order)) == (1, 24, 3)
    assert_same(snapshot, kept.fresh())
    assert set(snapshot.names) == {"Ada", "Ben", ""}


def test_a_new_vector_for_a_chunk_that_has_one_is_taken_up_and_no_view_sees_it(pipe: Pipeline) -> None:
    """Given a vector that is written again, differently, then the next snapshot has it and the one before its own."""
    pipe.say("harbour", "boats")
    pipe.settle()
    kept = Kept(pipe)
    before = kept.snapshot()
    as_given = content_of(before)
    other = HashEmbedder().embed_query("something else")
    with pipe.store.writing() as tx:
        tx.connection.execute(text("UPDATE chunks_vec SET embedding = :v WHERE chunk_id = 1"), {"v": other.tobytes()})
    after = kept.snapshot()
    assert kept.made == 1
    assert after.codes is not None
    assert after.codes.cosines(other, slice(0, 1))[0] == pytest.approx(1.0, abs=0.01)
    assert content_of(before) == as_given


def test_more_than_a_tenth_gone_is_made_anew(pipe: Pipeline) -> None:
    """Given 20 chunks, when two go, then they are marked; with the third the index is made anew."""
    for number in range(20):
        pipe.say(f"harbour {number}", session=f"s{number}")
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    pipe.forget("s3")
    pipe.forget("s4")
    assert (kept.snapshot().rows, kept.made) == (20, 1)
    pipe.forget("s5")
    assert (kept.snapshot().rows, kept.made) == (17, 2)
    assert_same(kept.snapshot(), kept.fresh())


def test_too_many_changes_are_not_taken_up_one_by_one(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "MAX_CHANGES", 5)
    pipe.say("harbour")
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    pipe.say("boats", "violin")
    pipe.settle()
    assert (len(kept.snapshot().order), kept.made) == (3, 1)
    pipe.say("coat", "train", "ticket")
    pipe.settle()
    assert (len(kept.snapshot().order), kept.made) == (6, 2)


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_changes_that_are_no_longer_known_mean_making_anew(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    """Given a log of which little or nothing is left, then what was missed is not missed for good."""
    pipe.say("harbour")
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    pipe.say("boats", "violin")
    pipe.settle()
    prune(pipe, monkeypatch, keep)
    assert (len(kept.snapshot().order), kept.made) == (3, 2)
    pipe.say("coat")
    pipe.settle()
    assert (len(kept.snapshot().order), kept.made) == (4, 2)
    assert_same(kept.snapshot(), kept.fresh())


def test_what_others_write_makes_no_index_stale(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an agent that is silent while others talk, when the log is pruned, then its index is as good as before."""
    pipe.say("harbour")
    pipe.settle()
    kept = Kept(pipe)
    for _ in range(3):
        kept.snapshot()
        pipe.say("boats", "violin", agent="bob")
        pipe.settle()
        kept.snapshot()
        prune(pipe, monkeypatch, 0)
    assert (len(kept.snapshot().order), kept.made) == (1, 1)


def test_the_log_is_pruned_in_steps(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a log of some changes, when all but two are to go, three at a time, then the newest two stay."""
    pipe.say(*VOCABULARY)
    pipe.settle()
    changes = pipe.count("forward_changes")
    monkeypatch.setattr(forward, "KEPT_CHANGES", 2)
    monkeypatch.setattr(forward, "_PRUNED_AT_ONCE", 3)
    removed = []
    while not removed or removed[-1]:
        with pipe.store.writing() as tx:
            removed.append(prune_changes(tx.connection))
    assert max(removed) == 3
    assert sum(removed) == changes - 2
    assert pipe.count("forward_changes") == 2


def test_words_counted_anew_mean_making_anew(pipe: Pipeline) -> None:
    """Given a row of the forward index that is written again, then its lower id is noticed."""
    pipe.say("harbour", "boats", "violin")
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    with pipe.store.writing() as tx:
        row = tx.connection.execute(text("SELECT * FROM forward_index WHERE chunk_id = 2")).one()._mapping
        tx.connection.execute(text("DELETE FROM forward_index WHERE chunk_id = 2"))
        tx.connection.execute(
            text(f"INSERT INTO forward_index VALUES ({', '.join(f':{name}' for name in row)})"),
            {**row, "words": hashes_of("garden").tobytes()},
        )
    snapshot = kept.snapshot()
    assert kept.made == 2
    assert counts(snapshot, "garden") == {2: 1}
    assert counts(snapshot, "boats") == {}


def test_an_agent_without_anything_has_an_empty_view_that_fills(pipe: Pipeline) -> None:
    """Given an agent that has said nothing, then its snapshot is empty, and takes up its first words."""
    pipe.say("of bob", agent="bob")
    pipe.settle()
    kept = Kept(pipe)
    empty = kept.snapshot()
    assert (empty.rows, empty.oldest, empty.newest, empty.mean_length) == (0, 0, 0, 1.0)
    pipe.say("harbour")
    pipe.settle()
    assert counts(kept.snapshot(), "harbour") == {2: 1}
    assert kept.made == 1
    assert_same(kept.snapshot(), kept.fresh())


def test_two_threads_ask_while_a_third_writes(pipe: Pipeline) -> None:
    """Given one index, when two ask and one stores and forgets, then every snapshot is whole and current."""
    pipe.say(*[f"harbour {number}" for number in range(60)])
    pipe.settle()
    with pipe.store.reading() as tx:
        index = AgentIndex(tx.index.active("vector"))
    done, faults = threading.Event(), []

    def ask() -> None:
        try:
            while not done.is_set():
                with pipe.store.reading() as tx:
                    rows = tx.for_agent("ana").forward
                    there = {row.chunk_id for batch in rows.rows() for row in batch}
                    snapshot = index.current(rows)
                    assert snapshot is not None
                    # Another thread may have brought it further than this transaction sees, never less far.
                    assert there - set(snapshot.chunk_ids.tolist()) == set()
                    assert snapshot.alive[snapshot.order].all()
                    assert sorted(snapshot.order.tolist()) == np.flatnonzero(snapshot.alive).tolist()
                    assert len(counts(snapshot, "harbour")) >= 60
        except Exception as fault:  # told to the test, which a thread cannot fail by itself
            faults.append(fault)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            pipe.say(f"boats {number}", f"violin {number}", session=f"t{number}")
            pipe.settle()
            if number in (4, 8):
                pipe.forget(f"t{number - 1}")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert faults == []
    with pipe.store.reading() as tx:
        snapshot = index.current(tx.for_agent("ana").forward)
        assert snapshot is not None
        assert_same(snapshot, made_whole(AgentIndex(tx.index.active("vector")), tx, "ana"))


def test_a_reader_of_an_older_state_does_not_set_the_index_back(pipe: Pipeline) -> None:
    """Given a transaction that began before a message, when it asks after another has, then nothing is lost."""
    pipe.say("harbour")
    pipe.settle()
    kept = Kept(pipe)
    kept.snapshot()
    assert kept.index is not None
    with pipe.store.reading() as old:
        assert old.for_agent("ana").forward.count() == 1
        pipe.say("boats")
        pipe.settle()
        assert len(kept.snapshot().order) == 2
        ahead = kept.index.current(old.for_agent("ana").forward)
        assert ahead is not None
        assert len(ahead.order) == 2
    assert_same(kept.snapshot(), kept.fresh())
    assert kept.made == 1


def happen(pipe: Pipeline, chance: random.Random, step: int) -> None:
    """One thing that happens to a memory."""
    what = chance.choice(["say", "say", "say", "file", "forget", "chunk", "settle", "other", "backwards"])
    content = " ".join(chance.choices(VOCABULARY, k=chance.randint(1, 6)))
    session = chance.choice(["s", "t", "u"])
    name = chance.choice([None, "Ada", "Ben"])
    turn = {"content": f"{content} {step}", "role": chance.choice(["user", "assistant"]), "name": name}
    if what == "say":
        pipe.say(turn, {"content": content}, session=session)
    elif what == "backwards":
        pipe.say({**turn, "sequence": 10_000 - 10 * step}, session=session)
    elif what == "file":
        pipe.hand_in(f"file:///{chance.randint(0, 2)}", content * 40, session=chance.choice([None, session]))
    elif what == "forget":
        pipe.forget(session)
    elif what == "other":
        pipe.say(content, agent="bob", session=session)
    elif what == "chunk":
        pipe.ingest()
        pipe.chunk()
    else:
        pipe.settle()


def prune(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    monkeypatch.setattr(forward, "KEPT_CHANGES", keep)
    with pipe.store.writing() as tx:
        prune_changes(tx.connection)


def made_whole(index: AgentIndex, tx: Transaction, agent: str) -> IndexSnapshot:
    snapshot = index.current(ForwardIndex(tx.connection, agent))
    assert snapshot is not None
    return snapshot


def counts(snapshot: IndexSnapshot, word: str) -> dict[int, int]:
    rows, often = snapshot.rows_with(hash_of(word))
    return dict(zip(snapshot.chunk_ids[rows].tolist(), often.tolist(), strict=True))


def assert_same(snapshot: IndexSnapshot, fresh: IndexSnapshot) -> None:
    """A snapshot tells of living chunks exactly what one made from nothing tells."""
    assert content_of(snapshot) == content_of(fresh)
    assert fresh.alive.all()


def content_of(snapshot: IndexSnapshot) -> dict[str, Any]:
    """All that a recall can read from a snapshot, by chunk and not by row."""
    order = snapshot.order
    columns = ("chunk_ids", "threads", "sequences", "created_at", "roles", "lengths", "embedded", "alive", "norms")
    assert snapshot.places[order].tolist() == list(range(len(order)))
    assert np.count_nonzero(snapshot.places >= 0) == len(order)
    query = HashEmbedder().embed_query("harbour boats")
    cosines = None
    if snapshot.codes is not None:
        cosines = np.where(snapshot.embedded[order], snapshot.codes.cosines(query, order.astype(np.int64)), 0).tolist()
    return {
        **{name: getattr(snapshot, name)[order].tolist() for name in columns},
        "speakers": [snapshot.names[number] if number >= 0 else None for number in snapshot.speakers[order]],
        "names": {name for name in snapshot.names if name},
        "numbers": (snapshot.mean_length, snapshot.oldest, snapshot.newest),
        "postings": {
            word: sorted(zip(snapshot.chunk_ids[rows].tolist(), often.tolist(), strict=True))
            for word in WORDS
            for rows, often in [snapshot.rows_with(word)]
        },
        "bm25": retrievers.own_scores(snapshot, WORDS)[order].tolist(),
        "cosines": cosines,
    }
