"""What is about somebody is found by name, by what they are to the user, and by what goes on about them; no more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memory.lifecycle.about import Found, Said, find_about


def talk(*texts: str, session: str = "s", speaker: str = "") -> list[Said]:
    """Return messages of a session, of the user and the assistant (`a: ...`)."""
    return [
        Said(
            "message",
            f"{session}{number}",
            session,
            "assistant" if text.startswith("a: ") else "user",
            speaker,
            text.removeprefix("a: "),
            number * 1_000_000,
        )
        for number, text in enumerate(texts)
    ]


def memory(content: str, source: str = "") -> Said:
    """Return a memory."""
    return Said("memory", content, "s", "", "", content, 0, source)


def found(about: str, said: Sequence[Said]) -> Found:
    """Look for something."""
    return find_about(about, lambda: said)


def ids(about: str, said: Sequence[Said]) -> dict[str, str]:
    """Return what is found, with the reasons."""
    answer = found(about, said)
    assert not answer.people
    return {one.id: reason for one, reason in answer.items}


SISTER = [
    *talk(
        "My sister Ana moved to Porto.",
        "a: How old is she?",
        "34.",
        "She has two cats, and works at a bank.",
        "Anyway, what is the weather in Faro?",
        "a: Sunny.",
    ),
    *talk("Ana called me.", "Anabel and I went to Santa Ana.", "My brother has a boat.", session="t"),
    memory("User's sister lives in Porto."),
    memory("User has a brother."),
    memory("User talked of cats.", source="s3"),
]


def test_a_sister_is_found_by_relation_by_name_and_by_pronouns() -> None:
    """Given `my sister Ana`, then her name, the messages that go on about her and memories of her are found."""
    assert ids("my sister", SISTER) == {
        "s0": "named",
        "s1": "same conversation",
        "s2": "same conversation",
        "s3": "same conversation",
        "t0": "alias",
        "User's sister lives in Porto.": "named",
        "User talked of cats.": "derived",
    }


@pytest.mark.parametrize("about", ["Ana", "ana", "everything about my sister Ana", "forget everything about Ana"])
def test_the_name_finds_the_same(about: str) -> None:
    """Given the name, then what calls her a sister is found as well."""
    assert ids(about, SISTER).keys() == ids("my sister", SISTER).keys()


@pytest.mark.parametrize(
    ("about", "texts", "people"),
    [
        ("Ana", ["My sister Ana sings.", "My boss Ana shouts."], ["my boss Ana", "my sister Ana"]),
        ("Ana", ["Ana Silva sings.", "I met Ana Gomes."], ["Ana Gomes", "Ana Silva"]),
        ("my sister", ["My sister Ana sings.", "My sister, Bea, dances."], ["my sister Ana", "my sister Bea"]),
    ],
)
def test_several_people_are_asked_back(about: str, texts: list[str], people: list[str]) -> None:
    """Given two people of the name, then nothing is found, and both are named."""
    answer = found(about, talk(*texts))
    assert (answer.items, answer.people) == ([], people)


def test_one_of_two_people_of_a_name_is_found_where_it_is_certain() -> None:
    """Given a sister and a boss of one name, then the bare name counts only where the sister alone is spoken of."""
    said = [
        *talk("My sister Ana sings.", "Ana was on the radio.", session="a"),
        *talk("My boss Ana shouts.", "Ana is tired.", session="b"),
        *talk("Ana wrote.", session="c"),
    ]
    assert list(ids("my sister Ana", said)) == ["a0", "a1"]


def test_a_verb_before_a_name_is_no_relation() -> None:
    """Given "my boyfriend is Jonas", then he is the boyfriend, and nothing else that "is" something is his."""
    said = [
        *talk("My boyfriend is Jonas.", "My birthday is on 14 March.", session="a"),
        *talk("My brother likes Jonas.", session="b"),
        *talk("My dentist likes Jonas. My boss recommended Jonas.", session="e"),
        *talk("My sister likes tea.", session="c"),
        *talk("My boyfriend has a boat.", session="d"),
        memory("User's boyfriend's name is Jonas."),
        memory("User's phone number is 0113 496 0456."),
    ]
    assert ids("Jonas", said) == {
        "a0": "alias", "b0": "named", "e0": "named", "d0": "alias", "User's boyfriend's name is Jonas.": "alias",
    }  # fmt: skip


def test_whoever_has_the_full_name_is_meant_whatever_else_they_are_called() -> None:
    """Given a name of two words, then "my favourite restaurant is Casa Lima" is about it, as all else that names it."""
    said = [
        *talk("My favourite restaurant is Casa Lima.", session="a"),
        *talk("Casa Lima has closed.", session="b"),
        *talk("My colleague Casa Brown has left.", session="c"),
    ]
    assert ids("Casa Lima", said) == {"a0": "named", "b0": "named"}


def test_a_relation_of_two_users_is_asked_back() -> None:
    """Given two users with a sister each, then the user is to be named."""
    said = [
        *talk("My sister sings.", session="a", speaker="kate"),
        *talk("My sister cooks.", session="b", speaker="lif"),
    ]
    assert len(found("my sister", said).people) == 2


@pytest.mark.parametrize(
    ("first", "after"),
    [
        ("My sister Ana sings.", "Bea called. She is fine."),
        ("My sister Ana sings.", "He is at work."),
        ("My sister Ana sings.", "My mother says she is tired."),
        ("My sister-in-law sings.", "The sister ship is old."),
        ("Your sister sings.", "She sings."),
    ],
)
def test_what_is_about_somebody_else_stays(first: str, after: str) -> None:
    """Given a message that names another, or another's sister, then it is not found."""
    assert "s1" not in ids("my sister", talk(first, after))


@pytest.mark.parametrize("about", ["my sister", "Priya", "my sister / Priya"])
def test_a_name_is_found_in_lower_case_unless_it_is_a_word_too(about: str) -> None:
    """Given a name that is also typed in lower case, then it is found; "a rose" says nothing about Rose."""
    said = [*talk("My sister Priya is here."), *talk("priya got a pump", "Priya left.", "i called priya", session="t")]
    assert list(ids(about, said)) == ["s0", "t0", "t1", "t2"]
    assert list(ids("Rose", [*talk("My friend Rose sings."), *talk("a rose fades", "roses rose", session="t")])) == [
        "s0"
    ]


def test_an_ordinary_word_is_no_name() -> None:
    """Given `Will`, then a sentence that begins with the word is not found, nor what only has the word."""
    said = talk("Will Smith is a friend, and will come.", "Will you come?", "I will.", "Will's car is red.")
    assert list(ids("Will", said)) == ["s0", "s3"]


@pytest.mark.parametrize(
    ("about", "gone", "stays"),
    [
        ("k@x.org", "Write to K+news@x.org.", "Write to b.k@x.org."),
        ("order 2031-77-001", "2031 77 001 was sent.", "2031-77-0010 was sent."),
        ("host 10.0.0.7", "It is 010.000.000.007.", "It is 10.0.0.70."),
        ("the file etc/app.conf", "See /etc/app.conf.", "See /etc/app.conf.bak."),
        ("BLUE-FOX", "We call it blue fox.", "A blue car and a fox."),
        ("Zoe / Зоя", "Зоя is here.", "Зое is not."),
        ("Zoe Park 박지", "박지는 왔다.", "A park."),
        ("the lamp of the hall", "The hall has a new lamp.", "The hall is cold."),
    ],
)
def test_other_writings_are_found_and_longer_ones_are_not(about: str, gone: str, stays: str) -> None:
    """Given an identifier or a name in another writing, then it is found, but not one that only contains it."""
    assert list(ids(about, talk(gone, stays))) == ["s0"]
