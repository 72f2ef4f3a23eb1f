"""The words of chunks counted anew: what was lost or counted differently is put right, the rest stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.reindex import reindex
from storage.verify import verify
from support.pipeline import Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A conversation of two who are named, and a file."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say({"content": "Where did you move?", "name": "Ada"}, {"content": "To Lisbon.", "name": "Ben"})
    pipe.hand_in("file:///z.txt", "a file about zanzibar")
    pipe.settle()
    yield pipe
    pipe.close()


def rows(pipe: Pipeline) -> list[tuple[object, ...]]:
    with pipe.store.reading() as tx:
        found = tx.connection.exec_driver_sql("SELECT * FROM forward_index ORDER BY agent_id, chunk_id")
        return [tuple(row) for row in found]


def test_rows_that_are_right_are_left_alone(pipe: Pipeline) -> None:
    """Given a sound store, when it is indexed anew, then no row and no change is written."""
    before, changes = rows(pipe), pipe.count("forward_changes")
    assert reindex(pipe.store, "text", now=pipe.now()) == 3
    assert (rows(pipe), pipe.count("forward_changes")) == (before, changes)


def test_words_that_were_counted_otherwise_are_found_after_a_rebuild(pipe: Pipeline) -> None:
    """Given rows with other words and one that is gone, when rebuilt, then all is as it was, in memory too."""
    before = rows(pipe)
    assert pipe.found("lisbon") == ["To Lisbon."]
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE forward_index SET words = x'01000000' WHERE speaker = 'Ben'")
        tx.connection.exec_driver_sql("DELETE FROM forward_index WHERE role = 'file'")
    assert verify(pipe.store).wrong
    reindex(pipe.store, "text", now=pipe.now())
    assert rows(pipe) == before
    assert verify(pipe.store).wrong == []
    assert (pipe.found("lisbon"), pipe.found("zanzibar")) == (["To Lisbon."], ["a file about zanzibar"])
