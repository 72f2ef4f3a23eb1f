"""What an embedding does not see: two texts as near as can be that do not say the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.recall.sameness import NameMasks, normalised_text, says_the_same, statement
from support.statements import DIFFERENT, SAME


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
