"""What an embedding does not see: two texts as near as can be that do not say the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.recall.sameness import NameMasks, normalised_text, says_the_same, statement

SAME = [
    ("I like tea", "I like tea."),
    ("I like tea", "i like  tea!"),
    ("The user prefers dark mode", "User prefers dark mode."),
    ("The user doesn't eat meat", "The user does not eat meat"),
    ("The user can't eat gluten", "The user cannot eat gluten."),
    ("The user won\u2019t fly", "The user won't fly"),
    ("My sister Anna lives in Lisbon", "My sister Anna is living in Lisbon"),
    ("The user prefers green tea in the morning.", "In the morning the user prefers green tea."),
    ("The tests must pass before a merge", "Tests must pass before merging"),
    ("The user prefers dark mode in all editors", "The user prefers dark mode in every editor"),
    ("The user wants two reports", "The user wants 2 reports"),
    ("My favourite colour is blue", "My favorite color is blue"),
    ("I like drinking tea in my garden", "I enjoy drinking tea in my garden"),
    ("用户喜欢喝绿茶。", "用户喜欢喝绿茶"),
]
DIFFERENT = [
    ("Anna's code is 17", "Ben's code is 18"),
    ("Anna's code is 17", "Ben's code is 17"),
    ("The door code is 1743", "The door code is 1734"),
    ("Release 2.3.1 failed", "Release 2.3.2 failed"),
    ("It is due on the 5th of May", "It is due on the 6th of May"),
    ("The backup runs at two", "The backup runs at three"),
    ("The user moved to Munich", "The user moved to Munich in 2021"),
    ("The tests must pass", "The tests must never pass"),
    ("The invoice was paid", "The invoice wasn't paid"),
    ("The user can eat gluten", "The user cannot eat gluten"),
    ("Ich esse Fleisch", "Ich esse kein Fleisch"),
    ("用户喜欢喝茶", "用户不喜欢喝茶"),
    ("The meeting is on Monday", "The meeting is on Tuesday"),
    ("The key is on the left shelf", "The key is on the right shelf"),
    ("Deploy before the migration", "Deploy after the migration"),
    ("I like tea", "I dislike tea"),
    ("I like tea", "You like tea"),
    ("He likes tea", "She likes tea"),
    ("The user prefers tea over coffee", "The user prefers coffee over tea"),
    ("Anna owes Ben money", "Ben owes Anna money"),
    ("The flight from Rome to Paris is booked", "The flight from Paris to Rome is booked"),
    ("The user has a cat named \"momo\"", "The user has a cat named \"mimi\""),
    ("The user wants the report as PDF", "The user wants the report as CSV"),
    ("The user likes tea", "The user likes tea and keeps bees behind a shed"),
    ("The user lives alone", "The user lived alone, which was hard"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_in_its_form_alone_is_the_same(one: str, other: str) -> None:
    """Given the same said in another form, then nothing speaks against it, whichever comes first."""
    assert says_the_same(statement(one), statement(other))
    assert says_the_same(statement(other), statement(one))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_differs_in_what_matters_is_not_the_same(one: str, other: str) -> None:
    """Given another number, name, side, negation or order, then they stay apart, whichever comes first."""
    assert not says_the_same(statement(one), statement(other))
    assert not says_the_same(statement(other), statement(one))


@given(st.lists(st.text(max_size=40), min_size=2, max_size=8))
def test_the_first_look_at_names_holds_back_nothing_that_is_the_same(texts: list[str]) -> None:
    """Given any texts, then each is the same as itself, in both directions, and the masks let the same through."""
    statements = [statement(text) for text in texts]
    masks = NameMasks(statements)
    rows = np.arange(len(texts))
    for row, one in enumerate(statements):
        assert says_the_same(one, one)
        possible = set(masks.possible(row, rows).tolist())
        for other in rows.tolist():
            assert says_the_same(one, statements[other]) == says_the_same(statements[other], one)
            assert other in possible or not says_the_same(one, statements[other])


def test_space_and_a_full_stop_are_no_part_of_a_text() -> None:
    """Given the same words with other space and end, then the plain text is one; a question is another."""
    assert normalised_text(" I  like\ttea. ") == normalised_text("I like tea!") == "I like tea"
    assert normalised_text("I like tea?") != normalised_text("I like tea")


def test_a_memory_of_64_kb_of_marks_is_compared_at_once() -> None:
    """Given a text that is one letter under 30,000 marks, when it is compared, then as that letter with 30 of them."""
    text = "a" + "\u0301\u0327" * 15_000
    assert len(normalised_text(text)) <= 31
    assert statement(text) == statement("a" + "\u0301\u0327" * 15)
