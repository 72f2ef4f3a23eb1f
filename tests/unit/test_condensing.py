"""Conversations condensed by their own sentences: what is quoted, what is left out, that everything has its share."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.tokens import EstimatedTokens
from memory.sessions.condensers import GROUP_SIZE, Condenser, append_lines, select_lines
from memory.sessions.passages import passages_of, split_sentences, unquotable_lines
from storage.pipeline.records import MessageRecord
from storage.sessions.summaries import Line, format_summary, parse_summary, speaker_label, without_quoted
from support.contexts import MORNING, message
from support.talks import MINUTE, MOVE, long_talk, talk

COUNTER = EstimatedTokens()


def summary(messages: list[MessageRecord], limit: int = 160) -> list[str]:
    return [str(line) for line in Condenser(COUNTER).condense(messages, {}, limit).lines]


def tokens(lines: list[Line]) -> int:
    return COUNTER.count([format_summary(lines)])[0]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("I saw Dr. Marsh at 5 p.m. Then I left.", ["I saw Dr. Marsh at 5 p.m.", "Then I left."]),
        ("It is 3.5 km, e.g. by bus. So did I. Yes!", ["It is 3.5 km, e.g. by bus.", "So did I.", "Yes!"]),
        ("See https://a.example/x.y?z=1 for it. Bye.", ["See https://a.example/x.y?z=1 for it.", "Bye."]),
        ("wow... ok then. i moved. we met J. R. Hill", ["wow... ok then.", "i moved.", "we met J. R. Hill"]),
        ('"Really?" he asked. He said "go." Then left.', ['"Really?" he asked.', 'He said "go."', "Then left."]),
        ("Buy:\n- milk from the shop\n2. two loaves", ["Buy:", "milk from the shop", "two loaves"]),
        ("a line that is\nwrapped here. And\n\nnew", ["a line that is wrapped here.", "And", "new"]),
        ("今日は雨です。明日は晴れ！本当？", ["今日は雨です。", "明日は晴れ！", "本当？"]),
        ("Before.\n```python\nx = 1. y\n```\nAfter.", ["Before.", "After."]),
        ("Open fence:\n~~~\nnever closed. At all.", ["Open fence:"]),
        ('# Plan\n{"a": 1, "b": [2, 3]}\n| a | b |\n> quoted\nText.', ["Text."]),
        ("", []),
        (" \n\t\n", []),
    ],
)
def test_sentences_are_found_as_a_reader_would(text: str, sentences: list[str]) -> None:
    """Given abbreviations, numbers, addresses, lists, code, then prose alone is split, where sentences end."""
    assert split_sentences(text) == sentences


@given(st.text(max_size=400))
@settings(max_examples=200)
def test_any_text_gives_sentences_of_one_line_each(text: str) -> None:
    """Given any text, then its sentences are not empty, on one line, and of bounded length."""
    for sentence in split_sentences(text):
        assert sentence.strip()
        assert len(sentence.splitlines()) == 1
        assert len(sentence) <= 320


def test_a_summary_tells_what_matters_with_date_and_speaker_in_order() -> None:
    """Given small talk around a move, a job and an allergy, then these are told and the small talk is not."""
    lines = summary(talk())
    text = "\n".join(lines)
    assert all(re.match(r"- 2026-05-01 (Ann|Ben)(, asked \".*\")?: \S", line) for line in lines)
    for fact in ("moved to Lisbon on 3 May", "marine biologist", "allergic to peanuts", "night train for 12 July"):
        assert fact in text
    for chatter in ("Hi Ben", "sounds so cool", "Great!", "Can't wait", "How are you"):
        assert chatter not in text
    assert text.index("Lisbon") < text.index("biologist") < text.index("peanuts") < text.index("train")


def test_what_is_quoted_stands_so_in_the_conversation() -> None:
    """Given a summary, then each line is a sentence of its speaker, word for word."""
    texts = {name: " ".join(text for who, text in MOVE if who == name) for name in ("Ann", "Ben")}
    lines = parse_summary("\n".join(summary(talk(), 400)))
    assert {line.speaker.partition(",")[0] for line in lines} == {"Ann", "Ben"}
    for line in lines:
        assert line.text in texts[line.speaker.partition(",")[0]]


def test_a_short_answer_carries_its_question() -> None:
    """Given a question and "In Porto.", then the line says what was asked; a bare question is no line."""
    lines = summary(talk((("Ben", "Where did you study biology?"), ("Ann", "In Porto, until 2019."))))
    assert '- 2026-05-01 Ann, asked "Where did you study biology?": In Porto, until 2019.' in lines
    (line,) = (line for line in parse_summary("\n".join(lines)) if line.text == "In Porto, until 2019.")
    assert line.date == "2026-05-01"


def test_every_stretch_has_its_share() -> None:
    """Given twelve days and room for some lines each, then no day is left out and none takes it all."""
    found = select_lines(passages_of(long_talk(12)), 700, COUNTER)
    days = [int(re.search(r"day (\d+)", line.text).group(1)) for line in found]  # type: ignore[union-attr]
    assert set(days) == set(range(12))
    assert max(days.count(day) for day in range(12)) <= 3
    assert tokens(found) <= 700


def test_the_end_of_a_long_conversation_is_not_cut() -> None:
    """Given more sentences than are compared at once, then the last day is told as the first."""
    messages = long_talk(60)
    assert len(passages_of(messages)) > GROUP_SIZE
    found = select_lines(passages_of(messages), 2_000, COUNTER)
    days = {int(re.search(r"day (\d+)", line.text).group(1)) for line in found}  # type: ignore[union-attr]
    assert {min(days), max(days)} <= {0, 1, 2, 57, 58, 59}
    assert tokens(found) <= 2_000


def test_nothing_is_said_twice() -> None:
    """Given the same thing said five times, then one line tells it."""
    lines = tuple(("Ann", f"My train to Lisbon leaves at seven on Friday{'!' * n}") for n in range(5))
    assert sum("train" in line for line in summary(talk(lines))) == 1


def test_a_flagged_message_is_told_before_others() -> None:
    """Given room for one line, then the message of the highest importance is it."""
    messages = talk((("Ann", "I bought nine apples at the market."), ("Ann", "I sold five pears at the station.")))
    weighed = [messages[0], message(1, messages[1].content, name="Ann", importance=1.0)]
    assert "pears" in summary(weighed, 20)[0]
    assert len(summary(weighed, 20)) == 1


def test_vectors_tell_what_is_central() -> None:
    """Given three alike and one apart by their vectors, then with room for one line it is not the one apart."""
    texts = ("We planted oaks by the river.", "We watered seedlings near the water.", "We fixed bicycles all day.")
    near, far = np.eye(2, dtype=np.float32)
    messages = [message(n, text, name="Ann") for n, text in enumerate(texts)]
    vectors = {0: [(texts[0], near)], 1: [(texts[1], near)], 2: [(texts[2], far)]}
    assert "bicycles" not in select_lines(passages_of(messages, vectors), 18, COUNTER)[0].text


def test_tools_are_named_and_their_answers_left_out() -> None:
    """Given an exchange with tools, then the summary says that they were used, and not what they put out."""
    messages = [
        message(0, "Please look up the tides in the harbour for tomorrow.", name="Ann"),
        message(1, "", role="assistant", tool_calls=[{"id": "a"}]),
        message(2, "LOW 03:12 HIGH 09:40 from the harbour office.", role="tool", tool_name="tides", tool_call_id="a"),
        message(3, "You are a helpful assistant of the harbour.", role="system"),
    ]
    text = "\n".join(summary(messages))
    assert "tools used: tides (1)" in text
    assert "look up the tides" in text
    assert "LOW" not in text
    assert "helpful" not in text


def test_secrets_are_redacted() -> None:
    """Given a key in what was said, then it is not in the summary."""
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8t" * 2
    text = "\n".join(summary(talk((("Ann", f"My api_key for the harbour service is {key} since Monday."),)), 400))
    assert key not in text
    assert "harbour service" in text


@pytest.mark.parametrize("content", ["ok", "!!!", "", "👍", "```\ncode\n```"])
def test_what_says_nothing_still_gives_a_summary_or_none_without_failing(content: str) -> None:
    """Given messages of which nothing can be quoted, then condensing them does not fail and keeps to its room."""
    lines = Condenser(COUNTER).condense([message(0, content, name="Ann")], {}, 60).lines
    assert tokens(lines) <= 60
    assert lines or content in ("!!!", "👍", "```\ncode\n```")


def test_of_a_sentence_too_long_for_the_room_the_beginning_is_told() -> None:
    """Given room for a few words, then the one line is cut and fits."""
    (line,) = summary(
        talk((("Ann", "I moved to Lisbon with my sister, two cats and a piano that was built in 1905."),)), 15
    )
    assert line.endswith("…")
    assert COUNTER.count([line])[0] <= 15


def test_the_same_conversation_gives_the_same_summary() -> None:
    """Given the same messages twice, then both summaries are equal."""
    assert summary(long_talk(5), 500) == summary(long_talk(5), 500)


def test_messages_without_a_text_are_counted() -> None:
    """Given only empty messages, then one line says how many there were."""
    (line,) = unquotable_lines([message(0, ""), message(1, " ")])
    assert str(line) == "- 2026-05-01 nobody: (2 messages without a text)"


# --- the summary as it grows ---


def line(number: int, text: str = "something happened in the harbour town") -> Line:
    return Line(f"2026-01-{number % 28 + 1:02}", "Ann", f"On visit {number} {text}.")


def test_a_summary_that_fits_is_only_longer() -> None:
    """Given room, then new lines stand behind the old ones."""
    assert append_lines([line(1)], [line(2)], 100, COUNTER) == [line(1), line(2)]


def test_a_summary_over_its_most_loses_of_its_oldest_part_alone() -> None:
    """Given forty old lines and four new ones, then all new ones and the newer old ones are whole, and it fits."""
    old, new = [line(n) for n in range(40)], [line(n) for n in range(40, 44)]
    most = tokens([*old, *new]) - 100
    kept = append_lines(old, new, most, COUNTER)
    assert kept[-30:] == [*old, *new][-30:]
    assert tokens(kept) <= most
    assert kept[0] in old[:16]
    assert 0 < len([one for one in kept if one in old[:16]]) < 16


def _is_of(kept: Line, line: Line) -> bool:
    """Return whether a kept line is this one, or its beginning where no whole line had room."""
    return kept == line or (kept.text.endswith("…") and line.text.startswith(kept.text[:-1].rstrip()))


@given(st.lists(st.integers(0, 90), max_size=30), st.lists(st.integers(0, 90), max_size=12), st.integers(20, 400))
@settings(max_examples=60)
@example([0, 0], [0, 0], 43)  # the oldest line is cut
def test_whatever_is_appended_the_most_is_kept_and_the_newest_line_stays(
    old: list[int], new: list[int], most: int
) -> None:
    """Given any lines, then the summary has at most its tokens, in order, and ends with the newest line."""
    kept = append_lines([line(n) for n in old], [line(n) for n in new], most, COUNTER)
    assert tokens(kept) <= most
    every = [line(n) for n in [*old, *new]]
    places = iter(every)
    assert all(any(_is_of(one, other) for other in places) for one in kept)
    if new and tokens([line(n) for n in new]) <= most:
        assert kept[-len(new) :] == [line(n) for n in new]


def test_lines_are_read_as_they_are_written() -> None:
    """Given lines of both forms, then reading gives them back; names that would break the form are mended."""
    lines = [Line("2026-05-01", 'Ann, asked "Where?"', "In Porto: by the sea."), Line("", "", "free text: as it is")]
    assert parse_summary(format_summary(lines)) == lines
    assert speaker_label("A:\nB" + "x" * 100) == "A B" + "x" * 56 + "…"
    assert speaker_label(" : ") == "someone"


def test_what_is_shown_as_it_was_said_is_left_out_of_a_summary() -> None:
    """Given a message that a line quotes, whole or its beginning, then the line goes, and others stay."""
    text = "- 2026-05-01 Ann: I moved to Lisbon.\n- 2026-05-01 Ben: I booked a very…\nfree"
    assert without_quoted(text, ["Hi!  I moved\nto Lisbon. Bye"]) == "- 2026-05-01 Ben: I booked a very…\nfree"
    assert without_quoted(text, ["I booked a very long ticket"]).endswith("Lisbon.\nfree")
    assert without_quoted("", ["x"]) == ""


def test_a_pause_begins_another_stretch() -> None:
    """Given two halves a day apart, then their passages are in two stretches."""
    halves = [*talk(MOVE[2:4]), *talk(MOVE[4:7], at=MORNING + 24 * 60 * MINUTE)]
    assert {passage.stretch for passage in passages_of(halves)} == {0, 1}
