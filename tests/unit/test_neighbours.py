"""What stood beside a message that was recalled, on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.errors import Rejected
from support.pipeline import Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A session of five turns, one of another agent beside it, and a file."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("one", "two", "the zanzibar turn", "four", "five")
    pipe.say("stranger before", "stranger after", agent="bob")
    pipe.hand_in("file:///z.txt", "zanzibar in a file", session="s")
    pipe.settle()
    yield pipe
    pipe.close()


def test_neighbours_come_only_when_asked_for(pipe: Pipeline) -> None:
    """Given a message with neighbours, then a recall that does not ask for them has none, and one that does has."""
    for asked, expected in (({}, ([], [])), ({"neighbours": 1}, (["two"], ["four"]))):
        (turn,) = [memory for memory in pipe.recall("zanzibar", **asked) if memory.text == "the zanzibar turn"]
        assert ([one.text for one in turn.before], [one.text for one in turn.after]) == expected


@pytest.mark.parametrize(("count", "before", "after"), [(1, ["two"], ["four"]), (10, ["one", "two"], ["four", "five"])])
def test_neighbours_are_those_of_the_same_session_oldest_first(
    pipe: Pipeline, count: int, before: list[str], after: list[str]
) -> None:
    """Given a message within a session, then as many as there are on both sides; a file has none."""
    found = {memory.kind: memory for memory in pipe.recall("zanzibar", mode="keyword", neighbours=count)}
    assert [turn.text for turn in found["message"].before] == before
    assert [turn.text for turn in found["message"].after] == after
    assert (found["file"].before, found["file"].after) == ([], [])


@pytest.mark.parametrize("count", [-1, 11])
def test_a_number_of_neighbours_out_of_range_names_the_field(pipe: Pipeline, count: int) -> None:
    """Given -1 or 11 neighbours, then the request is rejected."""
    with pytest.raises(Rejected) as error:
        pipe.recall("zanzibar", neighbours=count)
    assert error.value.field == "neighbours"
