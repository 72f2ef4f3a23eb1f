"""What a turn asks and what it tells, and the question that a chunk answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.pipeline.chunking import cut
from memory.questions import LEAD_CHARACTERS, is_only_questions, questions_in, text_to_embed, without_questions
from storage.pipeline.records import SourceText

pytestmark = pytest.mark.slow

VERY_LONG = 2**18


@pytest.mark.parametrize(
    ("text", "asked", "statements"),
    [
        ("", "", ""),
        ("I moved.", "", "I moved."),
        ("When did you move?", "When did you move?", "When did you move?"),
        ("I moved. And you? Tell me.", "And you?", "I moved. Tell me."),
        ("You? Me? Yes!", "You? Me?", "Yes!"),
        ("一緒に？はい。", "一緒に？", "はい。"),
        ("أين كنت؟ في البيت.", "أين كنت؟", "في البيت."),
        ("What's 3.5?\nIt is more", "What's 3.5?", "It is more"),
        ("See a.b/c?d=e now.", "", "See a.b/c?d=e now."),
        ("Where are you?   😀", "Where are you?", "😀"),
        ("? ? ?", "? ? ?", "? ? ?"),
        ("   ", "", "   "),
    ],
)
def test_a_text_is_parted_into_what_it_asks_and_tells(text: str, asked: str, statements: str) -> None:
    """Given a text, then its questions are found, and what it tells is the rest, or all where there is no rest."""
    assert questions_in(text) == asked
    assert without_questions(text) == statements


@pytest.mark.parametrize(
    ("text", "alone"), [("And you? Or Ann?!", True), ("I moved. And you?", False), ("I moved.", False), ("  \n", False)]
)
def test_a_text_that_only_asks_is_told_from_one_that_tells(text: str, alone: bool) -> None:
    """Given a text, then it only asks where there is a question and nothing else."""
    assert is_only_questions(text) == alone


def test_of_many_questions_the_last_are_kept() -> None:
    found = questions_in("first? " + "x" * 1_000 + "? last?")
    assert len(found) == LEAD_CHARACTERS
    assert found.endswith("x? last?")


@given(st.text())
def test_any_text_has_something_to_embed(text: str) -> None:
    """Given any text, then what is left is never empty for a text that is not, and a lead is at most 320 long."""
    assert bool(without_questions(text)) == bool(text)
    assert len(questions_in(text)) <= LEAD_CHARACTERS


@pytest.mark.parametrize("unit", ["x", " ", "?", "? ", "\n", "？", "。 ", ". "])
def test_a_very_long_text_of_anything_is_read_once(unit: str) -> None:
    """Given a very long text, then it is parted; a pattern that went back and forth in it would never end."""
    assert without_questions(unit * VERY_LONG)
    assert len(questions_in(unit * VERY_LONG)) <= LEAD_CHARACTERS


@pytest.mark.parametrize(
    ("lead", "text", "speaker", "embedded"),
    [
        ("", "Yes!", None, "Yes!"),
        ("When?", "Yes!", None, "When? Yes!"),
        ("", "Ada: Really? I moved.", "Ada", "Ada: I moved."),
        ("When?", "Ada: In May. And you?", "Ada", "When? Ada: In May."),
        ("", "Ada: Really?", "Ada", "Ada: Really?"),
        ("", "Really? I moved.", "Ada", "I moved."),
    ],
)
def test_what_is_embedded_is_the_question_the_speaker_and_what_is_told(
    lead: str, text: str, speaker: str | None, embedded: str
) -> None:
    """Given a chunk, then it is embedded with what it answers and who says it, without what it asks."""
    assert text_to_embed(lead, text, speaker) == embedded


def test_only_the_first_chunk_of_a_message_answers_the_question_before_it() -> None:
    """Given a long answer, when it is cut, then its first chunk has the question as its lead, the others none."""
    chunks = cut(source("word " * 400, before="I see. When did you move?"))
    assert len(chunks) > 2
    assert [chunk.lead for chunk in chunks] == ["When did you move?", *[""] * (len(chunks) - 1)]


def test_a_statement_before_is_no_lead() -> None:
    assert [chunk.lead for chunk in cut(source("Yes", before="I see."))] == [""]


@pytest.mark.parametrize(
    ("content", "name", "speaker"),
    [
        ("I moved", "Ada", "Ada"),
        ("Ben: I moved", "Ada", "Ada"),
        ("Ada: I moved", None, "Ada"),
        ("Ada Byron: I moved", None, "Ada Byron"),
        ("Dr. Jean-Luc O'Neil: hi", None, "Dr. Jean-Luc O'Neil"),
        ("Émile: salut", None, "Émile"),
        ("田中: こんにちは", None, "田中"),
        ("émile: salut", None, None),
        ("ada: I moved", None, None),
        ("The man who said: no", None, None),
        ("One Two Three Four: no", None, None),
        ("12:30 is lunch", None, None),
        ("Ada:no blank", None, None),
        ("Ada: ", None, None),
        ("I said to Ada: go", None, None),
    ],
)
def test_who_speaks_is_the_name_or_the_label_in_front(content: str, name: str | None, speaker: str | None) -> None:
    """Given a text, then its speaker is the message's name, or one to three words with capitals before a colon."""
    (chunk,) = cut(source(content, name=name))
    assert chunk.speaker == speaker


def test_a_speaker_of_256_characters_stands_before_every_chunk() -> None:
    """Given the longest name, when a text is cut, then each chunk has it whole and 640 characters at most."""
    chunks = cut(source("word " * 400, name="n" * 256))
    assert all(chunk.text.startswith("n" * 256 + ": word") and len(chunk.text) <= 640 for chunk in chunks)


def source(content: str, *, before: str = "", name: str | None = None) -> SourceText:
    """A user's message with what was said before it."""
    return SourceText(1, "m1", "ana", 1, 2, "user", name, content, None, (), 0, 0, "t", before)
