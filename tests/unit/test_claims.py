"""What plain sentences claim, and which of two recalled ones replaces the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.recall.claims import claims_of, replaces
from support.pipeline import Pipeline


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I live in Lisbon.", "I moved to Porto last week."),
        ("We live in a flat in Graça.", "We've just moved to Faro."),
        ("My desk is on floor 3.", "My desk is on floor 4."),
        ("My sister's name is Ana.", "My sister's name is Rita."),
        ("The capital of Ruritania is Strelsau.", "The capital of Ruritania is Zenda."),
        ("Kate is married to Tom.", "Kate is married to Ben."),
        ("The plant was founded by Olga Prins.", "The plant was founded by Jan Prins."),
        ("Kate works at Acme.", "Kate joined Globex."),
        ("The company that built the bridge is Acme.", "The company that built the bridge is Globex."),
        ("Kate is the captain of the Otters.", "Lif is the captain of the Otters."),
        ("3. The meeting starts at nine.", "7. The meeting starts at ten."),
        ("Rudi plays the position of goalkeeper.", "Rudi plays the position of striker."),
    ],
)
def test_a_value_replaces_an_earlier_one_of_the_same_attribute(older: str, newer: str) -> None:
    (before,), (after,) = claims_of(older), claims_of(newer)
    assert replaces(after, before)
    assert replaces(before, after)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I like tea.", "I like coffee."),
        ("I went to Rome.", "I went to Paris."),
        ("My hobbies are chess and rowing.", "My hobbies are baking and rowing."),
        ("I live in Lisbon.", "If I lived in Porto I would row."),
        ("I live in Lisbon.", "Do I live in Porto?"),
        ("I live in Lisbon.", "I no longer live in Porto."),
        ("I live in Lisbon.", 'She said "I live in Porto".'),
        ("I live in Lisbon.", "I live in Lisbon, Portugal."),
        ("The author of Emma is Jane Austen.", "The author of Persuasion is Jane Austen."),
        ("Kate is married to Tom.", "Lif is married to Ben."),
        ("She lives in Rome.", "She lives in Paris."),
        ("I'm interested in tents.", "I'm interested in boats."),
        ("My head is spinning.", "My head is killing me."),
        ("Xbox Live was made by Microsoft.", "Hope Solo is a goalkeeper."),
        ("It's great to be back.", "It's great to be here."),
        ("", "..."),
    ],
)
def test_what_may_hold_together_replaces_nothing(one: str, other: str) -> None:
    pairs = [(a, b) for a in claims_of(one) for b in claims_of(other)]
    assert not any(replaces(a, b) for a, b in pairs)


def test_a_long_text_is_read_in_linear_time() -> None:
    """Given texts of words and marks without end, then reading them ends at once."""
    for text in ("is " * 50_000, "the city of " * 20_000, "a" * 100_000, "'" * 100_000, "I live in " * 20_000):
        assert list(claims_of(text)) == []


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline in which the agent was told twice where the desk is."""
    pipe = Pipeline(tmp_path / "data")
    for floor in (3, 4):
        pipe.say(f"My desk is on floor {floor}.", session="s")
        pipe.advance(60)
    pipe.settle()
    yield pipe
    pipe.close()


def test_the_newest_value_comes_first_and_the_older_says_by_what_it_is_replaced(pipe: Pipeline) -> None:
    """Given two values of an attribute, when the older fits a query better, then the newer is still before it."""
    older, newer = pipe.messages("s")
    found = pipe.recall("desk on floor 3").results
    assert [result.id for result in found] == [newer.id, older.id]
    assert (found[1].replaced_by, found[1].replaced_at) == (newer.id, found[0].created_at)
    assert found[0].replaced_by is None


def test_a_newer_value_below_the_limit_takes_the_place_of_the_older(pipe: Pipeline) -> None:
    assert [result.text for result in pipe.recall("desk on floor 3", limit=1).results] == ["My desk is on floor 4."]


def test_what_another_speaker_says_of_their_own_replaces_nothing(pipe: Pipeline) -> None:
    """Given somebody else's desk, then both are told as they are."""
    pipe.say({"content": "My desk is on floor 9.", "name": "Ben"}, session="s")
    pipe.settle()
    found = pipe.recall("desk on floor", limit=10).results
    replaced = {result.text: result.replaced_by is not None for result in found}
    assert replaced == {
        "My desk is on floor 3.": True,
        "My desk is on floor 4.": False,
        "My desk is on floor 9.": False,
    }
