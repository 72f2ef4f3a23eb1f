"""The relevance of what was said in another script than the query's, and of Chinese asked for in Chinese."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import DEFAULT_MODEL
from retrieval.query import RecallRequest
from storage.recall.words import is_character_pair, is_function_word
from support.pipeline import Pipeline
from support.recalling import search_sessions

# What texts are about, by words of two languages.
_SUBJECTS = (("dentist", "牙医"), ("appointment", "预约"), ("walrus", "海象"), ("cat", "猫"), ("coffee", "咖啡"))
_OWN = 128
SAID = (
    "I have a dentist appointment on Tuesday.",
    "The cat threw up on the carpet again.",
    "We ran out of coffee this morning.",
    "12:30, 4 + 4",
    *(f"turn {number} is about subject{number}" for number in range(60)),
)
FLOOR = 0.05


class TwoLanguages:
    """An embedder that knows some subjects in two languages; the rest of a vector is the text's own."""

    dimension = len(_SUBJECTS) + _OWN
    device = "cpu"
    dtype = "float32"

    def __init__(self, model: str) -> None:
        self.model = model

    def load(self) -> None:
        """Do nothing: there is no model."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of the texts."""
        return np.array([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one text."""
        subjects = [float(any(word in text for word in words)) for words in _SUBJECTS]
        own = np.random.default_rng(zlib.crc32(text.encode())).normal(size=_OWN)
        vector = np.array([*subjects, *(0.7 * own / np.linalg.norm(own))], np.float32)
        unit: NDArray[np.float32] = vector / np.linalg.norm(vector)
        return unit


@pytest.fixture
def open_pipe(tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    """Opens a workspace with what was said, embedded by a model of the given name."""
    opened: list[Pipeline] = []

    def open_one(*said: str, model: str = "knows-both") -> Pipeline:
        pipe = Pipeline(tmp_path / str(len(opened)), embedder=TwoLanguages(model))
        opened.append(pipe)
        pipe.say(*said)
        pipe.settle()
        return pipe

    yield open_one
    for pipe in opened:
        pipe.close()


def best(pipe: Pipeline, query: str, **options: Any) -> tuple[str, float]:
    first = next(iter(pipe.recall(query, **options)))
    return first.text, first.relevance


@pytest.mark.parametrize("options", [{}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}])
def test_what_fits_in_another_script_passes_the_floor(
    open_pipe: Callable[..., Pipeline], options: dict[str, str]
) -> None:
    """Given English memories, when they are asked for in Chinese, then missing words are no evidence against them."""
    pipe = open_pipe(*SAID)

    text, relevance = best(pipe, "牙医预约", **options)
    assert text == SAID[0]
    assert relevance > FLOOR
    assert [found.text for found in pipe.recall("牙医预约", min_score=FLOOR, **options)] == [SAID[0]]


def test_what_nothing_fits_does_not_pass_it(open_pipe: Callable[..., Pipeline]) -> None:
    """Given a few English memories, when something else is asked in either script, then nothing passes the floor."""
    pipe = open_pipe(*SAID[:10])

    for query in ("海象", "walrus", "今天天气怎么样"):
        assert list(pipe.recall(query, min_score=FLOOR)) == []


def test_the_reverse_holds_too(open_pipe: Callable[..., Pipeline]) -> None:
    """Given Chinese memories, when they are asked for in English, then the one that fits passes the floor."""
    pipe = open_pipe("我星期二有牙医预约", *(f"我们谈到第{chr(0x4E00 + 50 * number)}件事情" for number in range(60)))

    text, relevance = best(pipe, "which day dentist appointment")
    assert text == "我星期二有牙医预约"
    assert relevance > FLOOR


def test_a_model_that_knows_one_language_is_not_trusted_with_two(open_pipe: Callable[..., Pipeline]) -> None:
    """Given the same vectors under the name of the English model, then missing words are evidence."""
    known = best(open_pipe(*SAID), "牙医预约")[1]
    unknown = best(open_pipe(*SAID, model=DEFAULT_MODEL), "牙医预约")[1]

    assert known > 2 * unknown


def test_words_that_are_shared_count_across_scripts(open_pipe: Callable[..., Pipeline]) -> None:
    """Given a name that a Chinese query shares with an English text, then it raises the relevance."""
    pipe = open_pipe(*SAID, "Quetzalcoatl waters the garden")
    found = {one.text: one.relevance for one in pipe.recall("牙医认识我们的Quetzalcoatl", limit=70)}

    assert found["Quetzalcoatl waters the garden"] > 2 * found[SAID[1]]


def test_texts_of_one_script_are_estimated_as_before(open_pipe: Callable[..., Pipeline]) -> None:
    """Given a Chinese text beside English ones, then the relevance of the English ones does not change much."""
    query = "which day dentist appointment"
    alone = best(open_pipe(*SAID), query)
    beside = best(open_pipe(*SAID, "我们今天没有咖啡了"), query)

    assert beside[0] == alone[0] == SAID[0]
    assert beside[1] == pytest.approx(alone[1], abs=0.02)


@pytest.mark.parametrize("floor", [None, FLOOR])
def test_sessions_are_found_across_scripts(open_pipe: Callable[..., Pipeline], floor: float | None) -> None:
    """Given a session in English, when it is searched in Chinese, then its best match has the same relevance."""
    pipe = open_pipe(*SAID)
    request = RecallRequest(query="牙医预约", agent="ana", min_score=floor)
    (found,) = search_sessions(pipe.store, pipe.embedder, request).results

    assert found.excerpt == SAID[0]
    assert found.relevance == best(pipe, "牙医预约")[1]


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("什么", True),
        ("我们", True),
        ("的狗", True),
        ("滑雪", False),
        ("牙医", False),
        ("我", True),
        ("the", True),
        ("dog", False),
    ],
)
def test_a_pair_with_a_character_of_grammar_is_a_function_word(word: str, is_one: bool) -> None:
    assert is_function_word(word) is is_one


@pytest.mark.parametrize(
    ("word", "is_one"), [("滑雪", True), ("カタ", True), ("한국", True), ("go", False), ("雪", False), ("да", False)]
)
def test_pairs_are_of_scripts_without_spaces(word: str, is_one: bool) -> None:
    assert is_character_pair(word) is is_one


def test_grammar_alone_is_hardly_evidence_in_chinese(open_pipe: Callable[..., Pipeline]) -> None:
    """Given words of grammar that a query shares with a Chinese text, then they do not make it relevant."""
    pipe = open_pipe("我的猫在地毯上睡觉了", "明天我们去滑雪", "咖啡喝完了")

    cat = {one.text: one.relevance for one in pipe.recall("我的什么在这", mode="keyword")}["我的猫在地毯上睡觉了"]
    ski = best(pipe, "什么时候滑雪", mode="keyword")
    assert cat < 0.1
    assert ski[0] == "明天我们去滑雪"
    assert ski[1] > cat


def test_a_word_that_nothing_contains_counts_against_a_chinese_text(open_pipe: Callable[..., Pipeline]) -> None:
    """Given a query of a word that is there and one that is not, then it fits less than the first word alone."""
    pipe = open_pipe("明天我们去滑雪", "咖啡喝完了", "猫在地毯上睡觉")

    assert best(pipe, "滑雪比赛冠军", mode="keyword")[1] < best(pipe, "滑雪", mode="keyword")[1]
