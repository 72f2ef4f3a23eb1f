"""Tokens are counted as the model counts them: whole texts, from several threads, fast, and without torch."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.embedders.base import DEFAULT_MODEL
from adapters.tokens import ELLIPSIS, EstimatedTokens, ModelTokens, TokenCounter, build_token_counter, truncate

MODEL = build_token_counter("sentence-transformers", DEFAULT_MODEL)
COUNTERS = [MODEL, EstimatedTokens()]


def test_the_default_model_counts_by_its_own_tokenizer() -> None:
    """Given the default model, then its tokenizer is found on this machine and counts words and word pieces."""
    assert isinstance(MODEL, ModelTokens)
    assert MODEL.name == DEFAULT_MODEL
    assert MODEL.count(["", "I moved to Lisbon in May.", "snowboarding"]) == [0, 7, 2]


def test_nothing_is_cut_off_or_filled_up() -> None:
    """Given texts beyond the model's 256 tokens beside short ones, then each counts what it has."""
    assert MODEL.count(["word " * 5_000, "a"]) == [5_000, 1]


def test_a_word_that_the_model_does_not_know_counts_by_its_bytes() -> None:
    """Given a megabyte without blanks, which is one unknown token to the model, then it counts for what it takes."""
    assert MODEL.count(["a" * 1_000_000]) == [250_000]
    assert MODEL.count(["hello 😀😀 there"]) == [4]  # hello, there, and 8 bytes


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("Köln", 2), ("東京都庁", 3), ("\ud800", 1)]
)
def test_the_estimate_is_a_token_for_four_bytes_rounded_up(text: str, tokens: int) -> None:
    """Given a text, then the estimate is its bytes in UTF-8 divided by four; what is no Unicode has one too."""
    assert EstimatedTokens().count([text]) == [tokens]


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "text-embedding-3-small"), ("hash", ""), ("none", DEFAULT_MODEL)]
)
def test_a_model_without_a_tokenizer_here_is_estimated(provider: str, model: str) -> None:
    """Given an endpoint or no model, then counts are estimates."""
    assert build_token_counter(provider, model).name == "estimate"  # type: ignore[arg-type]


def test_an_unknown_model_is_estimated_without_asking_the_network() -> None:
    """Given a model that is nowhere on this machine, or no name at all, then it is estimated at once."""
    assert build_token_counter("sentence-transformers", "nobody/has-this").name == "estimate"
    assert build_token_counter("sentence-transformers", "no such / name").name == "estimate"


def test_a_damaged_tokenizer_falls_back_to_the_estimate(tmp_path: Path) -> None:
    """Given a folder whose tokenizer.json is no JSON, then texts are estimated, and the name says so."""
    (tmp_path / "tokenizer.json").write_text("{")
    counter = build_token_counter("sentence-transformers", str(tmp_path))
    assert counter.count(["abcde"]) == [2]
    assert counter.name == "estimate"


def test_many_threads_that_ask_first_get_the_same_counts() -> None:
    """Given a counter that nobody used yet, when eight threads ask at once, then all get the same."""
    fresh = build_token_counter("sentence-transformers", DEFAULT_MODEL)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fresh.count(["one two three"]), range(32)))
    assert found == [[3]] * 32


def test_many_texts_are_counted_in_one_call_of_the_tokenizer() -> None:
    """Given chat turns of 100,000 tokens in all, then the tokenizer is called once, which uses all cores, and without
    positions."""
    turns = ["We rowed across the harbour again and it rained all day long."] * 7_700
    counter = build_token_counter("sentence-transformers", DEFAULT_MODEL)
    assert isinstance(counter, ModelTokens)
    counter.count(["warm"])
    tokenizer = Mock(wraps=counter._tokenizer)
    counter._tokenizer = tokenizer
    assert sum(counter.count(turns)) > 100_000
    assert [name for name, *_ in tokenizer.method_calls] == ["encode_batch_fast"]


def test_counting_needs_no_torch() -> None:
    """Given a fresh process, when tokens are counted, then torch was not imported."""
    code = (
        "import sys; from adapters.tokens import build_token_counter;"
        f" assert build_token_counter('sentence-transformers', {DEFAULT_MODEL!r}).count(['a b']) == [2];"
        " assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("counter", COUNTERS, ids=["model", "estimate"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=400), limit=st.integers(1, 60))
@settings(max_examples=150)
def test_a_cut_text_fits_and_is_a_beginning(counter: TokenCounter, text: str, limit: int) -> None:
    """Given any text and limit, when it is truncated, then it is the text itself or a beginning of it, and fits."""
    shorter = truncate(text, limit, counter)
    assert shorter == text or text.startswith(shorter.removesuffix(ELLIPSIS))
    assert counter.count([shorter])[0] <= limit


@pytest.mark.parametrize("counter", COUNTERS, ids=["model", "estimate"])
def test_a_text_is_cut_at_the_end_of_a_word(counter: TokenCounter) -> None:
    """Given a sentence, when it does not fit, then what is left ends with a whole word and the mark of omission."""
    text = "alpha beta gamma delta epsilon zeta eta theta"
    shorter = truncate(text, 5, counter)
    assert shorter.endswith(ELLIPSIS)
    assert text.startswith(shorter.removesuffix(ELLIPSIS) + " ")


def test_a_long_text_is_cut_close_to_the_limit() -> None:
    """Given a text of several pieces, when it is truncated, then hardly a token of the limit is wasted."""
    text = "some words that go on and on " * 20_000
    for limit in (10, 1_000, 50_000):
        assert limit - 8 <= MODEL.count([truncate(text, limit, MODEL)])[0] <= limit


def test_one_endless_word_is_cut_within() -> None:
    """Given a word that alone is too long, when it is truncated, then its beginning is left."""
    assert truncate("a" * 1_000, 11, EstimatedTokens()) == "a" * 40 + ELLIPSIS
