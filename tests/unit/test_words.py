"""From a text to words: the same for what is stored and what is asked, whatever the text is made of."""

from __future__ import annotations

import sys
import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.cutting import normalise
from storage.recall.words import hash_of, hashes_of, with_few_marks, words_of

MEBIBYTE = 2**20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("it's a well-known_fact", ["it", "s", "a", "well", "known", "fact"]),
        ("Ärger im CAFÉ", ["arger", "im", "cafe"]),
        ("Straße", ["strasse"]),
        ("ﬁne ①", ["fine", "1"]),
        ("2023-08-14", ["2023", "08", "14"]),
        ("東京都", ["東京", "京都"]),
        ("東", ["東"]),
        ("go東京now", ["go", "東京", "now"]),
        ("한국어", ["한국", "국어"]),
        ("ｶﾀｶﾅ", ["カタ", "タカ", "カナ"]),
        ("😀 🎉!", []),
        ("", []),
        ("\x00 a", ["a"]),
        ("\ud800ab \udfff", ["ab"]),
    ],
)
def test_a_text_becomes_folded_words(text: str, words: list[str]) -> None:
    """Given a text, then case, accents and widths are folded, and what has no blanks comes in pairs."""
    assert words_of(text) == words


@given(st.text())
def test_hashes_are_those_of_the_words_in_their_order(text: str) -> None:
    """Given any text, then there is one hash a word, in order, whichever way it was written."""
    assert hashes_of(text).tolist() == [hash_of(word) for word in words_of(text)]
    assert words_of(unicodedata.normalize("NFD", text)) == words_of(unicodedata.normalize("NFC", text))


def test_forms_of_a_word_are_one() -> None:
    assert len({hash_of(word) for word in ("running", "runs", "run")}) == 1
    assert hash_of("run") != hash_of("ran")


@pytest.mark.parametrize(
    "text", ["x" * MEBIBYTE, "語" * MEBIBYTE, "é" * MEBIBYTE, "a" + "\u0301\u0327" * (MEBIBYTE // 2)]
)
def test_a_mebibyte_without_a_blank_is_cut_into_short_words(text: str) -> None:
    """Given a text without blanks, then no word is longer than 64: what is kept by word stays small.

    Marks in the wrong order on one letter took minutes to sort.
    """
    assert max(map(len, words_of(text))) <= 64


def test_long_words_that_begin_the_same_are_one() -> None:
    assert words_of("x" * 70) == words_of("x" * 64 + "yyy") == ["x" * 64]


@given(st.text(alphabet=st.sampled_from("ae \u0301\u0327\u0323\u3099😀語\u0e38"), max_size=80))
def test_no_more_than_30_marks_stay_on_a_character(text: str) -> None:
    """Given stacked marks, then 30 of them stay, and a text with fewer is left as it is."""
    kept = with_few_marks(text)
    assert all(run <= 30 for run in _marks(kept))
    if all(run <= 30 for run in _marks(text)):
        assert kept == text


def test_no_character_that_is_sorted_as_a_mark_counts_as_a_letter() -> None:
    """`with_few_marks` looks for runs of what is no letter: no combining character may be one for the pattern."""
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code))]
    assert [mark for mark in marks if with_few_marks(mark * 100) != mark * 30] == []


def test_a_chunk_of_a_million_marks_is_normalised_at_once() -> None:
    """Given a message that is one letter under 900,000 marks, when it is cut, then it is one letter with 30."""
    assert len(normalise("a" + "\u0301\u0327" * 450_000)) <= 31


def test_threads_stem_at_the_same_time() -> None:
    """Given eight threads, when they hash the same texts, then all get the same."""
    text = " ".join(f"walking{number} houses{number}" for number in range(300))
    found: list[list[int]] = []

    def work() -> None:
        found.append([hash_of.__wrapped__(word) for word in words_of(text)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(hashes == found[0] for hashes in found)


def _marks(text: str) -> list[int]:
    """How many marks stand on each character."""
    runs = [0]
    for character in text:
        if unicodedata.combining(character):
            runs[-1] += 1
        else:
            runs.append(0)
    return runs
