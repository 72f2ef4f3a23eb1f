"""Texts of executors made fit to be kept: summaries that cut no character in two, and nothing that cannot be stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.scheduling.rules import SUMMARY_CHARACTERS, readable, summary_of

# Each is seen as one character.
CHARACTERS = {
    "an accent of its own": "e\u0301",
    "two accents": "a\u0302\u0323",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "a skin tone": "\U0001f44d\U0001f3fd",
    "a heart in colour": "\u2764\ufe0f",
    "a keycap": "1\ufe0f\u20e3",
    "a flag": "\U0001f1f5\U0001f1f9",
    "a flag of a region": "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "a line end of Windows": "\r\n",
    "a Korean syllable in parts": "\u1112\u1161\u11ab",
    "a Korean syllable with an end of its own": "\ud558\u11ab",
    "two joined letters of Hindi": "\u0915\u094d\u0937\u093f",
    "a Thai letter with its vowel": "\u0e01\u0e33",
    "a half-width letter with its voicing": "\uff76\uff9e",
    "a letter kept apart": "\u0646\u200c",
}


@pytest.mark.parametrize("character", CHARACTERS.values(), ids=CHARACTERS)
def test_no_character_is_cut_in_two_wherever_the_border_falls(character: str) -> None:
    """Given a text of 500 code points and more, then a character at the border is whole or left out."""
    for before in range(SUMMARY_CHARACTERS - len(character) - 1, SUMMARY_CHARACTERS + 1):
        summary = summary_of("x" * before + character + "y" * 20)
        room = before + len(character) <= SUMMARY_CHARACTERS
        rest = SUMMARY_CHARACTERS - before - len(character)
        assert summary == ("x" * before + (character + "y" * rest if room else "")).strip()


@pytest.mark.parametrize("character", CHARACTERS.values(), ids=CHARACTERS)
def test_a_text_of_such_characters_is_cut_between_two_of_them(character: str) -> None:
    """Given nothing but one such character again and again, then a whole number of them is kept, as many as fit."""
    summary = summary_of("x" + character * 600 + "y")
    fit = (SUMMARY_CHARACTERS - 1) // len(character)
    assert summary == ("x" + character * fit).strip()


@pytest.mark.parametrize("length", [0, 1, 499, 500])
def test_a_text_that_fits_is_kept_whole(length: int) -> None:
    """Given at most 500 characters, then the summary is the text."""
    assert summary_of("x" * length) == "x" * length


def test_of_a_longer_text_the_first_500_characters_are_kept() -> None:
    """Given a longer text, then its first 500 characters are the summary, without blanks around."""
    assert summary_of("x" * 501) == "x" * 500
    assert summary_of("  \n" + "x" * 499 + " " + "y" * 9) == "x" * 499
    assert summary_of(" \n\t ") == ""
    assert summary_of("one two", limit=4) == "one"


def test_one_character_longer_than_a_summary_is_cut_rather_than_left_out() -> None:
    """Given a letter below hundreds of accents, then some of it is shown."""
    assert summary_of("e" + "\u0301" * 900) == "e" + "\u0301" * 499
    assert len(summary_of("\U0001f1f5" + "\u200d" * 900)) == SUMMARY_CHARACTERS


@given(
    st.text(
        st.sampled_from("ab \r\n\u0301\u200d\ufe0f\U0001f468\U0001f1f5\U0001f1f9\U0001f3fd\u1161\u094d\u0915"),
        max_size=700,
    )
)
def test_a_summary_is_always_the_beginning_of_its_text(text: str) -> None:
    """Given any text, then its summary is a beginning of it, and no longer than 500 code points."""
    summary = summary_of(text)
    assert text.strip().startswith(summary)
    assert len(summary) <= SUMMARY_CHARACTERS
    assert bool(summary) == bool(text.strip())


@given(st.text(st.characters(codec=None), max_size=50))
def test_what_is_readable_can_be_stored(text: str) -> None:
    """Given any text, halves of surrogate pairs among it, then it can be encoded, has no NUL, and is kept if sound."""
    kept = readable(text)
    kept.encode()
    assert "\x00" not in kept
    assert len(kept) == len(text)
    assert readable(kept) == kept


def test_what_cannot_be_stored_is_replaced_and_the_rest_stays() -> None:
    """Given a NUL and half a pair, then these alone are replaced."""
    assert readable("a\x00b\ud800c \u00e9\U0001f600") == "a\ufffdb?c \u00e9\U0001f600"
