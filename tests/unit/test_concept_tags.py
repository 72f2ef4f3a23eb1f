"""Concept tags: which words a text is about, whatever the text."""

from __future__ import annotations

import unicodedata
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.memories.concept_tags import _READ_CHARACTERS, MAX_CHARACTERS, MAX_TAGS, concept_tags
from support.hostile_texts import TAGGED
from support.work import count_calls

_CJK_BLOCKS = ((0x3005, 0x3007), (0x3041, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7AF))
_ALPHABET = "abcÄßİΣ019 .-/_'’\n年月日東京ラーメン서울हिन्दीé\u0301\u200bﬁⅧ①٣"


def is_cjk(tag: str) -> bool:
    return any(low <= ord(tag[0]) <= high for low, high in _CJK_BLOCKS)


def assert_within_bounds(text: str) -> None:
    tags = concept_tags(text)
    assert len(tags) <= MAX_TAGS
    assert len(set(tags)) == len(tags)
    for tag in tags:
        assert (2 if is_cjk(tag) else 3) <= len(tag) <= MAX_CHARACTERS, tag
        assert tag == unicodedata.normalize("NFKC", tag), tag
        assert tag == tag.lower(), tag
        assert any(character.isalpha() for character in tag), tag
        assert not any(character.isspace() for character in tag), tag
    assert concept_tags(text) == tags


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_the_tags_of_any_text_keep_the_bounds(text: str) -> None:
    """Given any text, when its tags are derived twice, then both are the same and within every bound."""
    assert_within_bounds(text)


@given(st.text(alphabet=_ALPHABET, max_size=120))
@settings(max_examples=300)
def test_the_tags_of_texts_made_of_awkward_characters_keep_the_bounds(text: str) -> None:
    """Given joiners, marks, digits of several scripts and ligatures in any order, then the bounds hold."""
    assert_within_bounds(text)


def test_compounds_come_first_in_their_order_and_keywords_follow() -> None:
    """Given file names, hyphens and slashes among words, then those lead, and the rest is filled by keywords."""
    found = concept_tags("I put the retry loop into pipeline.py for the sqlite-vec team; ci/cd rejects the retry")

    assert found[:3] == ("pipeline.py", "sqlite-vec", "ci/cd")
    assert found[3] == "retry"
    assert set(found[4:]) == {"loop", "team", "rejects"}


def test_the_compounds_of_the_specification_are_compounds() -> None:
    """Given `foo.bar`, `a-b` and `x/y`, then each is one tag."""
    assert concept_tags("of foo.bar and a-b and x/y") == ("foo.bar", "a-b", "x/y")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42 3.14 1,000 10am 3rd 5km ٣٤٥",
        "2026-05-01, 1/5/2026, 01.05.2026, 5-10",
        "on Monday the 3rd of May, May-2026, tomorrow at noon",
        "and the of with and/or he/she e.g. i.e. p.m.",
        "I'm sure they don't, it's what we've said",
        "a b c ab xy",
    ],
)
def test_numbers_dates_stop_words_and_short_words_are_no_tags(text: str) -> None:
    """Given nothing but what says nothing, then there are no tags."""
    assert concept_tags(text) == ()


def test_what_is_said_more_often_and_looks_like_a_name_weighs_more() -> None:
    """Given a word said three times and a name within a sentence, then both stand before what was said once."""
    found = concept_tags("the garden needs rain. my garden is by the river, my garden is near Porto somewhere wet")

    assert found[0] == "garden"
    assert found.index("porto") < found.index("river")


def test_forms_of_one_word_are_one_tag() -> None:
    """Given a word in singular, plural and possessive, then it is one tag as it was first written."""
    assert concept_tags("Boat, boats, the boat's boats") == ("boat",)


def test_case_and_compatibility_forms_are_folded() -> None:
    """Given full-width letters, a ligature and capitals, then the tags are NFKC and lower case."""
    assert concept_tags("ＰｏＳＴＧＲＥＳ ﬁnance") == ("postgres", "finance")


def test_scripts_without_blanks_give_words_of_two_characters_and_more() -> None:
    """Given Chinese, Japanese and Korean, then their words are tags and the words of grammar are none."""
    assert concept_tags("我的绿茶") == ("绿茶",)
    assert concept_tags("東京でラーメンを食べた")[:2] == ("ラーメン", "東京")
    assert set(concept_tags("서울 커피")) == {"서울", "커피"}
    assert concept_tags("住在上海市浦东新区")[:2] == ("上海", "海市")


@pytest.mark.parametrize("piece", TAGGED)
def test_of_a_long_text_only_the_beginning_is_read(piece: str) -> None:
    """Given a million characters made to be slow to read, then they cost no more than their beginning, which costs in
    proportion."""
    text = piece * (1_000_000 // len(piece))
    assert_within_bounds(text)
    half, beginning, all_of_it = (
        count_calls(partial(concept_tags, text[:characters]))
        for characters in (_READ_CHARACTERS // 2, _READ_CHARACTERS, len(text))
    )
    assert beginning < 2.2 * half
    assert all_of_it <= beginning
    assert concept_tags(text) == concept_tags(text[:_READ_CHARACTERS])
