"""A name that a user has told is known for the rest of the conversation, and so is whose it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.memories.patterns.names import names_told, note_names
from memory.memories.patterns.statements import find_statements
from reverie.clock import to_micros
from support.extracting import Extracting, tell
from support.pipeline import Pipeline

AT = to_micros(datetime(2026, 5, 6, 15, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("My husband's called Tom.", {"Tom": "husband"}),
        ("My eldest, Maya, starts school in May.", {"Maya": "child"}),
        ("We have two cats called Miso and Tofu.", {"Miso": "cat", "Tofu": "cat"}),
        ("I live with a beagle named Duke.", {"Duke": "beagle"}),
        ("I have three children: Mark, Ida and Ben.", {"Mark": "child", "Ida": "child", "Ben": "child"}),
        ("Fergus is my accountant.", {"Fergus": "accountant"}),
        ("My sister lives in Porto.", {}),
        ("My friend, this is great.", {}),
        ("My teacher Mr Smith is great.", {}),
        ('He said "my dog Rex is old".', {}),
        ("I have a question, Claude.", {}),
    ],
)
def test_names_are_known_with_what_they_are(message: str, names: dict[str, str]) -> None:
    assert names_told(message) == names


@pytest.mark.parametrize(
    ("message", "contents"),
    [
        ("Lena's moving to Porto in March, she got it.", ["Lena is moving to Porto in March (March 2027)."]),
        ("Leo has football practice on Tuesdays.", ["Leo has football practice on Tuesdays."]),
        ("Jonas hates mushrooms.", ["Jonas hates mushrooms."]),
        ("Nadia lives in Ghent.", ["Nadia lives in Ghent."]),
        ("Marta owes me 50 euros.", ["Marta owes User 50 euros."]),
        ("Ben is visiting us next weekend.", ["Ben is visiting User next weekend (16 to 17 May 2026)."]),
        ("Mia lost her first tooth today.", ["Mia lost her first tooth today (6 May 2026)."]),
        ("Harry raised his wand.", []),
        ("Napoleon got married in 1796.", []),
        ("Everyone hates Mondays.", []),
        ("Google is moving to Texas.", []),
        ("Redis works at scale.", []),
    ],
)
def test_somebody_is_known_by_what_only_people_of_a_life_do(message: str, contents: list[str]) -> None:
    """Given a name without a relation, then it is somebody's of the user's life if such people alone do so."""
    names: dict[str, str] = {}
    note_names(names, message)
    assert [one.content for one in find_statements(message, at=AT, names=names)] == contents


@pytest.mark.parametrize(
    ("message", "contents"),
    [
        ("Duke is afraid of thunder.", ["User's dog Duke is afraid of thunder."]),
        ("Duke's 12.", ["User's dog Duke is 12."]),
        ("Duke loves carrots.", ["User's dog Duke loves carrots."]),
        ("Luna is afraid of thunder.", []),
        ("Is Duke too old?", []),
        ("Duke, sit!", []),
        ("If Duke is afraid, I stay.", []),
    ],
)
def test_what_is_said_of_a_known_name_is_told_of_whose_it_is(message: str, contents: list[str]) -> None:
    """Given the name of the user's dog, then what a sentence says of Duke is about that dog, and of no other name."""
    found = find_statements(message, at=AT, names={"Duke": "dog"})
    assert [one.content for one in found] == contents
    assert all(one.quote in message for one in found)


@pytest.mark.parametrize(
    ("message", "contents"),
    [
        ("My sister is here, she's diabetic.", ["User's sister is diabetic."]),
        ("I saw my son. He's twelve and he plays the cello.", ["User's son is twelve.", "User's son plays the cello."]),
        (
            "My brother called. His name is Ivo, he's a nurse.",
            ["User's brother's name is Ivo.", "User's brother is a nurse."],
        ),
        ("She's allergic to eggs.", ["User's niece Ida is allergic to eggs."]),
        ("My sister called yesterday.", []),
        ("My mum and my sister are here, she's diabetic.", []),
        ("My sister's boss is here, she's diabetic.", []),
        ("My sister met a nurse. She's vegan.", []),
        ("My mum met Olga. She's vegan.", []),
        ("She told me to call my sister, she's vegan.", []),
        ("He's vegan.", []),
    ],
)
def test_a_pronoun_stands_for_the_only_one_whom_it_can_mean(message: str, contents: list[str]) -> None:
    """Given a relative of whom the user speaks, then "she" is that relative, unless it could be anybody else."""
    found = find_statements(message, at=AT, before="My niece Ida is ill.")
    assert [one.content for one in found if "met" not in one.content] == contents
    assert all(one.quote in message for one in found)


def test_pronouns_and_verbs_without_their_apostrophes_are_read() -> None:
    """Given "shes" and "cant", then they are read as "she's" and "can't"."""
    found = find_statements("my sister is here, shes diabetic. i cant swim btw", at=AT)
    assert [one.content for one in found] == ["User's sister is diabetic.", "User can't swim."]


def test_a_name_told_by_a_pronoun_is_known_from_then_on(pipe: Pipeline) -> None:
    """Given "her name is Ida" about the user's niece, then what is said of Ida is about the niece."""
    extracting = Extracting(pipe)
    tell(
        pipe,
        *({"content": one} for one in ("My niece is ill.", "Her name is Ida.", "Ida is allergic to eggs.")),
        user="kate",
    )
    extracting.close()
    assert "User's niece Ida is allergic to eggs." in extracting.contents()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def test_a_name_is_known_to_the_messages_after_it_and_of_its_speaker_alone(pipe: Pipeline) -> None:
    """Given the names of two speakers' pets, then a later message of either is about their own pet of that name."""
    extracting = Extracting(pipe)
    for messages in (
        {"Ana": "We have a dog called Duke.", "Ben": "My cat is called Luna."},
        {"Ana": "Duke is afraid of thunder.", "Ben": "Duke is afraid of water."},
    ):
        tell(pipe, *({"content": content, "name": name} for name, content in messages.items()), user="kate")
        extracting.close()
    contents = extracting.contents()
    assert "Ana's dog Duke is afraid of thunder." in contents
    assert not any("water" in content for content in contents)


@pytest.mark.parametrize(
    ("messages", "contents"),
    [
        (
            ["Emil has a dentist appointment on Thursday at 3pm", "Emil goes to Lindenschool."],
            ["Emil has a dentist appointment on Thursday (DAY) at 3pm.", "Emil goes to Lindenschool."],
        ),
        (
            ["Our son Emil is 8.", "Emil goes to Lindenschool."],
            ["User's son Emil is 8.", "User's son Emil goes to Lindenschool."],
        ),
        (["Rome has a museum.", "Rome goes to sleep early."], []),
        (["Rome has a cold winter.", "Rome has two airports."], []),
        (["Redis is 8, Kafka is 4", "Redis has a memory leak."], []),
        (["Germany's school system is old.", "Germany has a new law."], []),
        (["ok so i lost my passport", "again.", "found it!! in the glovebox"], ["User found their passport."]),
        (["I found it hard to sleep."], []),
    ],
)
def test_people_by_name_and_things_found_again_are_told(
    tmp_path: Path, messages: list[str], contents: list[str]
) -> None:
    """Given somebody of the user's life, or a thing that was lost, then later messages are told of them by name."""
    pipeline = Pipeline(tmp_path)
    extracting = Extracting(pipeline)
    for message in messages:
        tell(pipeline, message)
        extracting.sweep()
    found = [re.sub(r"\(\d[^)]*\)", "(DAY)", one) for one in extracting.contents()]
    assert [one for one in found if "name is" not in one] == contents
