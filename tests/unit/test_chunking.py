"""From a message to chunks: how long they are, where they are cut, what is in them, and what is one chunk."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semantic_text_splitter import TextSplitter

from memory import cutting
from memory.cutting import CHUNK_CHARACTERS, OVERLAP_CHARACTERS, normalise, split
from memory.pipeline import chunking
from memory.pipeline.chunking import cut, source_text
from reverie.contract import MAX_CONTENT_BYTES
from storage.pipeline.records import SourceText
from support.hostile_texts import CHUNKED, repeated
from support.pipeline import Pipeline

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=3_000)
PROSE = st.lists(
    st.sampled_from(["Yes.", "the", "Zanzibar", "naïve", "漢字", "👩‍👩‍👧", "\n\n", "\n", "e\u0301", "x" * 90])
)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def source(content: str, *, name: str | None = None, role: str = "user", tool_calls: str | None = None) -> SourceText:
    return SourceText(1, "id", "ana", 1, 1, role, name, content, tool_calls, (), 0, 0, "t")


def texts(content: str, **more: Any) -> list[str]:
    return [chunk.text for chunk in cut(source(content, **more))]


def test_a_short_text_is_one_chunk_as_it_was_said() -> None:
    """Given a text below the limit, then it is one chunk."""
    assert texts("Yes, last Tuesday!") == ["Yes, last Tuesday!"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t \r\n", "\u00a0\u2003\u3000", "\ufeff".strip("\ufeff")])
def test_a_text_of_blanks_alone_has_no_chunk(blank: str) -> None:
    """Given nothing to be found, then there is no chunk, not even of the speaker's name."""
    assert texts(blank, name="Ana") == []


def test_a_text_of_exactly_the_limit_is_one_chunk_and_one_more_character_makes_two() -> None:
    """Given 640 characters and 641, then one chunk and two."""
    assert [len(text) for text in texts("x" * 640)] == [640]
    assert len(texts("x" * 641)) == 2


def test_chunks_end_at_sentences_and_share_what_stands_between_them() -> None:
    """Given sentences, then a chunk begins with one, none is cut in two, and up to 96 characters are shared."""
    sentences = [f"This is sentence number {number:03} of it." for number in range(60)]
    chunks = texts(" ".join(sentences))
    assert all(len(chunk) <= CHUNK_CHARACTERS for chunk in chunks)
    for chunk in chunks:
        assert chunk.startswith("This is")
        assert chunk.endswith("of it.")
    for before, after in pairwise(chunks):
        shared = next(size for size in range(OVERLAP_CHARACTERS, 0, -1) if before.endswith(after[:size]))
        assert 0 < shared <= OVERLAP_CHARACTERS
    assert {s for s in sentences if any(s in chunk for chunk in chunks)} == set(sentences)


def test_a_word_longer_than_a_chunk_is_cut_and_nothing_of_it_is_lost() -> None:
    """Given 5,000 characters without a blank, then pieces of at most 640 that join up to all of it."""
    word = "".join(chr(97 + number % 26) for number in range(5_000))
    chunks = texts(word)
    assert max(map(len, chunks)) <= CHUNK_CHARACTERS
    assert all(any(word[start : start + 50] in chunk for chunk in chunks) for start in range(0, 4_950, 50))


@pytest.mark.parametrize(
    "text", ["👩‍👩‍👧‍👦" * 300, "e" + "\u0301" * 3_000, "🇩🇪" * 1_000, "漢" * 3_000, "\u202e\u200b" * 2_000]
)
def test_no_script_and_no_emoji_makes_a_chunk_too_long(text: str) -> None:
    """Given graphemes of many code points, then the limit still holds."""
    assert max(map(len, texts(text))) <= CHUNK_CHARACTERS


def test_one_form_is_stored_of_what_looks_the_same() -> None:
    """Given decomposed letters, tabs, no-break spaces and many empty lines, then one normalised text."""
    assert normalise("  Zoe\u0308\t \u00a0said\r\n\n\n\n hi  there ") == "Zoë said\n\nhi there"
    assert texts("cafe\u0301") == texts("café")


def test_the_speakers_name_stands_before_every_chunk() -> None:
    """Given a named speaker of a long turn, then each chunk says who spoke, and the limit holds with it."""
    chunks = texts("I went there. " * 100, name="Zoë")
    assert len(chunks) > 2
    assert all(chunk.startswith("Zoë: I went there.") for chunk in chunks)
    assert max(map(len, chunks)) <= CHUNK_CHARACTERS
    longest = texts("I went there. " * 100, name="n" * 256)
    assert max(map(len, longest)) <= CHUNK_CHARACTERS
    assert all(chunk.endswith("there.") for chunk in longest)


CALLS: dict[str, dict[str, Any]] = {
    "openai": {"id": "c", "type": "function", "function": {"name": "book", "arguments": '{"city": "Pemba", "n": 2}'}},
    "openai, broken arguments": {"function": {"name": "book", "arguments": "city: Pemba {"}},
    "openai, arguments as object": {"function": {"name": "book", "arguments": {"city": "Pemba"}}},
    "anthropic": {"type": "tool_use", "id": "c", "name": "book", "input": {"to": {"city": ["Pemba"]}}},
    "mcp": {"name": "book", "arguments": {"city": "Pemba"}},
    "langchain": {"name": "book", "args": {"city": "Pemba"}, "id": "c", "type": "tool_call"},
    "a text alone": {"name": "book", "arguments": '"Pemba"'},
}


@pytest.mark.parametrize("form", CALLS)
def test_the_arguments_of_a_tool_call_are_found_in_every_form(form: str) -> None:
    """Given a call as this vendor writes it, then its name and its texts are part of the message."""
    (text,) = texts("Booking now.", role="assistant", tool_calls=json.dumps([CALLS[form]]))
    assert text.startswith("Booking now.\nbook\n")
    assert "Pemba" in text


@pytest.mark.parametrize(
    "call", [{}, {"function": None}, {"function": "book"}, {"name": 7, "arguments": None}, {"x": "y"}]
)
def test_a_call_of_no_known_form_adds_nothing_and_breaks_nothing(call: dict[str, Any]) -> None:
    """Given an odd call, then the content alone is the text."""
    assert source_text("content", json.dumps([call])) == "content"


def test_a_turn_of_tool_calls_alone_can_be_found(pipe: Pipeline) -> None:
    """Given a turn without content, when recalled by an argument, then it is found."""
    pipe.say({"role": "assistant", "content": "", "tool_calls": [CALLS["openai"]]})
    pipe.settle()
    assert pipe.found("pemba") == ["book\nPemba"]


def test_a_repeat_in_a_session_is_one_chunk_whose_range_grows(pipe: Pipeline) -> None:
    """Given the same text thrice, in one batch and later, then one chunk from the first to the last."""
    pipe.say("yes", "no", "yes")
    pipe.settle()
    pipe.say("yes", {"role": "assistant", "content": "yes"})
    pipe.say("yes", session="other")
    pipe.settle()
    with pipe.store.reading() as tx:
        rows = tx.connection.exec_driver_sql(
            "SELECT text, sequence_start, sequence_end FROM chunks WHERE session_row = 1 ORDER BY id"
        ).all()
    assert [tuple(row) for row in rows] == [("yes", 1, 4), ("no", 2, 2), ("yes", 5, 5)]
    assert pipe.count("chunks") == 4, "what another role or another session says is a chunk of its own"
    assert pipe.count("message_chunks") == 6


def test_a_repeat_brings_its_tags(pipe: Pipeline) -> None:
    """Given a text without tags and its repeat with one, when recalled by the tag, then it is found."""
    pipe.say("yes")
    pipe.settle()
    pipe.say({"content": "yes", "tags": ["food"]})
    pipe.settle()
    assert pipe.found("yes", tags=("food",)) == ["yes"]


def test_chunking_twice_makes_nothing_new(pipe: Pipeline) -> None:
    """Given chunked messages, when chunked again, then nothing waits and nothing changes."""
    pipe.say("one", "two " * 500)
    pipe.ingest()
    assert pipe.chunk().done == 2
    chunks = pipe.count("chunks")
    assert pipe.chunk().done == 0
    assert pipe.count("chunks") == chunks


@pytest.mark.parametrize("piece", CHUNKED)
def test_the_longest_message_is_split_in_windows(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given 1 MiB, of whatever it is, then the splitter, which is quadratic, gets a little of it at a time."""
    windows: list[str] = []

    class Splitter:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._splitter = TextSplitter(*arguments, **options)

        def chunk_indices(self, text: str) -> list[tuple[int, str]]:
            windows.append(text)
            return self._splitter.chunk_indices(text)

        def chunks(self, text: str) -> list[str]:
            windows.append(text)
            return self._splitter.chunks(text)

    monkeypatch.setattr(cutting, "TextSplitter", Splitter)
    text = normalise(repeated(piece, MAX_CONTENT_BYTES))
    chunks = split(text)
    assert max(map(len, windows), default=0) <= 3 * CHUNK_CHARACTERS
    assert sum(map(len, windows)) <= len(text) * 2.5
    assert max(map(len, chunks)) <= CHUNK_CHARACTERS
    assert sum(map(len, chunks)) >= len(text) * 0.98


@pytest.mark.parametrize(
    "piece", ["\u3000", "\u2003", "\u0085", "\u2028", "\u2029", "\u3000\n", "\x1c\u2028", " \u0085"]
)
def test_no_blanks_of_any_kind_reach_the_splitter_in_long_runs(piece: str) -> None:
    """Given blanks of Unicode between words, of which the splitter takes 7 s for 8,000, then at most an empty line."""
    text = normalise(f"Start{piece * 4_000}end.")
    assert text in ("Start end.", "Start\n\nend.")


@pytest.mark.parametrize(
    "piece", ["A sentence of it. ", "word ", "Some words, and more.\n\n", "今天我们去了公园。很好玩。"]
)
def test_windows_do_not_show_in_the_chunks(piece: str) -> None:
    """Given a text of 40 chunks, then they are those that the splitter makes of the whole text."""
    text = normalise(repeated(piece, 20_000))
    whole = TextSplitter(CHUNK_CHARACTERS, overlap=OVERLAP_CHARACTERS, trim=True).chunks(text)
    assert split(text)[:-1] == whole[:-1]


@pytest.mark.parametrize("blank", [" ", "\n", ". "])
def test_no_word_of_a_long_text_is_lost_where_its_parts_meet(blank: str) -> None:
    """Given a text that is cut in parts before it is cut in chunks, then every word is whole in some chunk."""
    words = [f"word{number:06}" for number in range(12_000)]
    chunks = texts(blank.join(words))
    found = {word.rstrip(".") for chunk in chunks for word in chunk.split()}
    assert set(words) <= found
    assert max(map(len, chunks)) <= CHUNK_CHARACTERS


def test_what_there_is_no_time_to_cut_is_left_for_the_next(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a batch that is too much for its time, when chunked, then what was cut is stored and the rest is fresh."""
    monkeypatch.setattr("memory.pipeline.chunking._CUT_SECONDS", 0.0)
    pipe.say("one", "two", "three")
    pipe.ingest()
    done = 0
    while pipe.count("messages", "chunked_at IS NULL"):
        report = pipe.chunk()
        assert report.done == report.batches
        done += report.done
    assert done == 3
    assert (pipe.count("claims"), pipe.count("chunks")) == (0, 3)


def test_the_deadline_holds_inside_one_text(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a short text and a long one after it, when the time ends in the long one, then the next batch has it."""
    pipe.say("short", "long " * 3_000)
    pipe.ingest()
    at = count()
    clock = SimpleNamespace(monotonic=lambda: 0.1 * next(at), thread_time=time.thread_time)
    monkeypatch.setattr(chunking, "time", clock)
    report = pipe.chunk()
    assert (report.done, report.buried, report.batches) == (2, 0, 2), "what was cut is stored before the long text is"
    monkeypatch.undo()
    pipe.settle()
    assert pipe.found("long")


def test_a_text_that_cannot_be_cut_in_time_is_set_aside(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a text that takes too long, then it is a dead letter, the others are found, and a replay cuts it."""
    pipe.say("before", "long " * 3_000, "after")
    pipe.ingest()
    monkeypatch.setattr("memory.pipeline.chunking._SOURCE_CPU_SECONDS", 0.0)
    report = pipe.chunk()
    assert (report.done, report.buried) == (2, 1)
    assert pipe.chunk().batches == 0
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type) == ("chunk", "TextNotCut")
    monkeypatch.undo()
    pipe.settle()
    assert (bool(pipe.found("before")), bool(pipe.found("after")), bool(pipe.found("long"))) == (True, True, False)


def test_a_batch_reads_only_some_megabytes_at_once(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more text than a batch may read, then it reads at least one text, and the next batch the rest."""
    monkeypatch.setattr("memory.pipeline.chunking._BATCH_BYTES", 10)
    pipe.say("a text of twenty two", "b", "c", "a text of twenty four")
    pipe.ingest()
    reports = [pipe.chunk()]
    while reports[-1].more:  # on a slow machine, the time of a run ends with its first batch
        reports.append(pipe.chunk())
    assert (sum(report.done for report in reports), sum(report.batches for report in reports)) == (4, 2)


@given(TEXTS)
@settings(max_examples=150)
def test_of_any_text_no_chunk_is_too_long_and_no_word_is_lost(text: str) -> None:
    """Given any Unicode, then each chunk is within the limit, and each word up to half of it is in one of them."""
    chunks = texts(text)
    assert all(0 < len(chunk) <= CHUNK_CHARACTERS for chunk in chunks)
    for word in normalise(text).split():
        if len(word) <= OVERLAP_CHARACTERS:
            assert any(word in chunk for chunk in chunks), word


@given(PROSE, st.none() | st.text(st.characters(categories=["L"]), min_size=1, max_size=256))
@settings(max_examples=150)
def test_cutting_is_the_same_each_time_and_keeps_every_word_of_prose(words: list[str], name: str | None) -> None:
    """Given prose, then two cuts are equal to the hash, and every word is in some chunk."""
    text = " ".join(words)
    first, second = cut(source(text, name=name)), cut(source(text, name=name))
    assert first == second
    for word in normalise(text).split():
        assert any(word in chunk.text for chunk in first)


@given(TEXTS)
@settings(max_examples=100)
def test_normalising_twice_is_normalising_once(text: str) -> None:
    """Given any text, then its normal form is its own normal form, in NFC and without blanks at the ends."""
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once == once.strip()
