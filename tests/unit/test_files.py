"""Files: indexed once, replaced when they change, never by an older version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from reverie.contract import WaitFor
from reverie.pipeline.calls import IngestFile
from reverie.pipeline.submission import build_file, single
from storage.pipeline.records import NewDeadLetter
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline

URI = "file:///notes.md"
WORDS = ("north", "east", "south", "west", "middle", "coast", "hills", "town", "market", "palace", "garden", "school")


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def chunk_ids(pipe: Pipeline) -> list[int]:
    with pipe.store.reading() as tx:
        return list(tx.connection.exec_driver_sql("SELECT id FROM chunks ORDER BY id").scalars())


def test_a_file_is_found_under_its_source(pipe: Pipeline) -> None:
    """Given a file, when recalled, then the result says that it is one, with its tags and the stretch that matched."""
    pipe.hand_in(URI, "zanzibar is an island. " * 100, tags=["Geo"])
    pipe.settle()
    (found,) = pipe.recall("zanzibar", limit=10)
    assert (found.kind, found.name, found.tags, found.session) == ("file", URI, ["geo"], None)
    assert pipe.recall("zanzibar", tags=("geo",)).results


def test_an_unchanged_file_is_not_indexed_again(pipe: Pipeline) -> None:
    """Given a file that is handed in again as it was, then no chunk is made anew."""
    first = pipe.hand_in(URI, "zanzibar " * 200)
    pipe.settle()
    before = chunk_ids(pipe)
    pipe.hand_in(URI, "zanzibar " * 200)
    report = pipe.ingest()
    assert (report.stored, report.unchanged) == (0, 1)
    pipe.settle()
    assert chunk_ids(pipe) == before
    assert [memory.id for memory in pipe.recall("zanzibar")] == [first.id]


def test_an_unchanged_file_is_called_searchable_only_when_it_is(pipe: Pipeline) -> None:
    """Given a file handed in again before it was cut, then whoever waits is told of the second when it is found."""
    pipe.hand_in(URI, "zanzibar " * 200)
    pipe.ingest()
    second = build_file(IngestFile(source_uri=URI, content="zanzibar " * 200), agent="ana", trace="t")
    pipe.inbox.accept(WORKSPACE, [second], reply_to="r", wait="searchable")
    assert pipe.ingest().unchanged == 1
    assert pipe.inbox.wait_reply("r", 0.05) == []
    pipe.settle()
    assert [ready.id for ready in pipe.ready] == [second.id]
    third = build_file(IngestFile(source_uri=URI, content="zanzibar " * 200), agent="ana", trace="t")
    pipe.inbox.accept(WORKSPACE, [third], reply_to="r", wait="searchable")
    pipe.ingest()
    assert [outcome.state for outcome in pipe.inbox.wait_reply("r", 1.0)] == ["searchable"]


def test_a_changed_file_takes_the_place_of_its_old_self(pipe: Pipeline) -> None:
    """Given a file that changed, then what it said before is found no more, by words or by meaning."""
    pipe.hand_in(URI, "the old text of zanzibar " * 60)
    pipe.settle()
    pipe.hand_in(URI, "the new text of pemba " * 60)
    pipe.settle()
    assert pipe.found("zanzibar") == []
    assert len(pipe.recall("pemba", mode="keyword")) == 1
    assert (pipe.count("files"), pipe.count("claims")) == (1, 0)
    with pipe.store.reading() as tx:
        generation = tx.index.active("vector")
        assert generation is not None
        assert tx.index.vector_ids(generation) == set(chunk_ids(pipe))
    assert verify(pipe.store).wrong == []


def test_an_older_version_that_comes_late_does_not_replace_a_newer_one(pipe: Pipeline) -> None:
    """Given a worker that died with the first version, when another has stored the second, then that one stays."""
    pipe.hand_in(URI, "version one")
    held = pipe.inbox.take(WORKSPACE, limit=10)
    pipe.hand_in(URI, "version two")
    pipe.lose_worker()
    pipe.broker.zadd(f"test:inbox:{WORKSPACE}:due", {held[0].field: 2**52})  # it comes after the second
    pipe.broker.zrem(f"test:inbox:{WORKSPACE}:taken", held[0].field)
    assert pipe.ingest().taken == 2
    pipe.settle()
    assert pipe.found("version") == ["version two"]


def test_the_same_source_of_two_agents_and_two_sessions_are_different_files(pipe: Pipeline) -> None:
    """Given one source in several places, then each has its own text, and forgetting one leaves the others."""
    pipe.hand_in(URI, "zanzibar of ana")
    pipe.hand_in(URI, "zanzibar of bob", agent="bob")
    pipe.hand_in(URI, "zanzibar in a session", session="s")
    pipe.settle()
    assert sorted(pipe.found("zanzibar")) == ["zanzibar in a session", "zanzibar of ana"]
    assert pipe.found("zanzibar", session="s") == ["zanzibar in a session"]
    assert pipe.found("zanzibar", agent="bob") == ["zanzibar of bob"]
    pipe.forget("s")
    assert pipe.found("zanzibar") == ["zanzibar of ana"]


def test_a_text_that_a_file_repeats_is_one_chunk_of_it(pipe: Pipeline) -> None:
    """Given a file of one line a thousand times, then no two of its chunks are the same, cut again neither."""
    pipe.hand_in(URI, "the same line again\n" * 1_000)
    pipe.settle()
    with pipe.store.reading() as tx:
        total, different = tx.connection.exec_driver_sql(
            "SELECT count(*), count(DISTINCT content_hash) FROM chunks"
        ).one()
    assert total == different
    assert pipe.chunk().done == 0
    assert verify(pipe.store).wrong == []


def test_an_empty_file_is_stored_and_has_no_chunk(pipe: Pipeline) -> None:
    """Given a file that became empty, then its old text is gone and nothing is left to do."""
    pipe.hand_in(URI, "zanzibar")
    pipe.settle()
    pipe.hand_in(URI, " \n")
    pipe.settle()
    assert (pipe.found("zanzibar"), pipe.count("files"), pipe.count("chunks")) == ([], 1, 0)
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize("session", [None, "s"])
def test_a_forgotten_file_leaves_nothing_and_the_others_stay(pipe: Pipeline, session: str | None) -> None:
    """Given files, when one is forgotten, then its text, chunks and vectors are gone, and the rest is found."""
    gone = pipe.hand_in(URI, "zanzibar is an island. " * 100, session=session)
    stays = pipe.hand_in("file:///other.md", "zanzibar has a harbour", session=session)
    pipe.settle()
    assert [memory.kind for memory in pipe.recall("zanzibar", limit=10)] == ["file", "file"]
    assert not pipe.forget_file(gone.id, agent="bob")
    assert pipe.forget_file(gone.id)
    assert [memory.id for memory in pipe.recall("zanzibar", limit=10)] == [stays.id]
    assert (pipe.count("files"), pipe.count("chunks"), pipe.count("claims")) == (1, 1, 0)
    assert verify(pipe.store).wrong == []
    assert not pipe.forget_file(gone.id)


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_a_file_forgotten_on_its_way_does_not_come_back(pipe: Pipeline, stages: int) -> None:
    """Given a file that has passed some stages, when it is forgotten, then it is found neither then nor later."""
    file = pipe.hand_in(URI, "zanzibar is an island")
    for stage in (pipe.ingest, pipe.chunk, pipe.embed)[:stages]:
        stage()
    assert pipe.forget_file(file.id) == (stages > 0)
    pipe.settle()
    assert (pipe.found("zanzibar"), pipe.count("files"), pipe.count("chunks")) == ([], 0, 0)
    pipe.hand_in(URI, "zanzibar is an island")
    pipe.settle()
    assert pipe.found("zanzibar") == ["zanzibar is an island"]


def test_a_version_accepted_before_its_file_was_forgotten_is_not_stored(pipe: Pipeline) -> None:
    """Given a newer version in the inbox, and one whose worker died, when the file is forgotten, then both stay out."""
    stored = pipe.hand_in(URI, "version one of zanzibar")
    pipe.settle()
    pipe.hand_in(URI, "version two of zanzibar")
    pipe.hand_in(URI, "version of another place", session="s")
    assert pipe.forget_file(stored.id)
    report = pipe.ingest()
    assert (report.forgotten, report.stored) == (1, 1)
    pipe.settle()
    assert pipe.found("zanzibar version") == ["version of another place"]


def test_dead_letters_of_a_forgotten_file_go_with_it(pipe: Pipeline) -> None:
    """Given dead letters of two files and their chunks, then those of the other file are left."""
    gone = pipe.hand_in(URI, "zanzibar")
    stays = pipe.hand_in("file:///other.md", "pemba")
    pipe.settle()
    with pipe.store.writing() as tx:
        rows = tx.connection.exec_driver_sql(
            "SELECT f.id, f.row_id, c.id FROM files f JOIN chunks c ON file_row=row_id"
        )
        for file_id, row, chunk in rows.all():
            for stage, item in (("ingest", file_id), ("chunk-files", row), ("embed", chunk)):
                letter = NewDeadLetter("ana", None, stage, str(item), b"{}", "Rejected", "at fault", 1, "t")
                tx.dead_letters.add([letter], now=pipe.now())
    assert pipe.forget_file(gone.id)
    assert {(letter.stage, letter.item_id) for letter in pipe.dead_letters()} == {
        ("ingest", stays.id),
        ("chunk-files", "2"),
        ("embed", "2"),
    }


def test_an_id_of_another_file_is_a_conflict_and_names_no_table(pipe: Pipeline) -> None:
    """Given an id that another file has, then the second is a dead letter that says so, and the first stays."""
    first = pipe.hand_in("doc:1", "The heron", user="ann")
    pipe.ingest()
    pipe.inbox.accept(
        WORKSPACE,
        [build_file(IngestFile(source_uri="doc:2", content="Other", user="bo", id=first.id), agent="ana", trace="t")],
    )
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    assert letter.error.startswith(f"the id '{first.id}' is that of another file")
    assert letter.error_type == "Conflict"


@pytest.mark.parametrize("wait", ["queued", "stored", "searchable"])
def test_a_source_has_one_id_however_often_it_is_handed_in(pipe: Pipeline, wait: WaitFor) -> None:
    """Given a file that is handed in again before and after it is searchable, then its one id is answered."""
    first = pipe.hand_in("doc:1", "The heron")
    again = build_file(IngestFile(source_uri="doc:1", content="The heron"), agent="ana", trace="t")
    pipe.ingest()
    pipe.inbox.accept(WORKSPACE, [again], reply_to="r", wait=wait)
    pipe.settle()
    assert single(again).receipt(wait, pipe.inbox.wait_reply("r", 0.1)).accepted == [first.id]
    pipe.hand_in("doc:1", "The heron", tags=["bird"])
    pipe.settle()
    assert pipe.count("files", f"id = '{first.id}'") == pipe.count("files") == 1
    assert pipe.found("heron", tags=["bird"]) == ["The heron"]
    others = [{"session": "s"}, {"user": "kate"}, {"source_uri": "doc:2"}]
    given = IngestFile(source_uri="doc:1", content="")
    ids = {build_file(replace(given, **one), agent="ana", trace="t").id for one in others}
    assert len(ids | {first.id}) == 4


def test_each_version_of_a_file_that_waits_is_stored_in_turn(pipe: Pipeline) -> None:
    """Given a text, another and the first one again in the inbox at once, then the last one is what there is."""
    for text in ("one", "two", "one"):
        pipe.hand_in(URI, text)
    assert pipe.ingest().stored == 3
    pipe.settle()
    assert pipe.found("one two") == ["one"]


def test_chunks_that_a_new_version_has_too_keep_their_vectors(pipe: Pipeline) -> None:
    """Given a file with one changed word, then only the chunk that has it is embedded, and the old one is gone."""
    lines = [f"The {word} of zanzibar has a harbour of its own, and {word} boats.\n" * 3 for word in WORDS]
    pipe.hand_in(URI, "".join(lines))
    pipe.settle()
    before = chunk_ids(pipe)
    pipe.hand_in(URI, "".join(lines).replace(WORDS[4], "kilifi"))
    pipe.ingest()
    assert pipe.found("harbour") == [], "nothing of either version is found until the new one is cut"
    pipe.chunk()
    assert (pipe.count("chunks"), pipe.count("chunks", "embedded_at IS NULL")) == (len(before), 1)
    pipe.settle()
    assert len(set(chunk_ids(pipe)) & set(before)) == len(before) - 1
    assert pipe.found(WORDS[4]) == []
    assert len(pipe.recall("kilifi", mode="keyword").results) == 1
    assert verify(pipe.store).wrong == []
