"""Answers to questions for a secret: they look like nothing by themselves, and no summary and no dream has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.secrets import REDACTED, looks_secret, redact_secret_answers
from storage.memories.records import MemoryFilter
from support.dreams import Dreamer
from support.pipeline import Pipeline

ASKED = {"role": "assistant", "content": "Gladly. What is the wifi password?"}
GIVEN = "It's Saltmarsh, all in one word"


def test_the_answer_is_redacted_and_all_else_stays(tmp_path: Path) -> None:
    """Given a question for a password within what is summarised, or just before it, then its answer is taken out."""
    pipe = Pipeline(tmp_path)
    pipe.say("Hello", ASKED, GIVEN, "Thanks for that")
    pipe.settle()
    hello, asked, given, thanks = pipe.messages()
    assert looks_secret(GIVEN) is None

    whole = redact_secret_answers([hello, asked, given, thanks], "")
    rest = redact_secret_answers([given, thanks], asked.content)

    assert [message.content for message in whole] == ["Hello", ASKED["content"], REDACTED, "Thanks for that"]
    assert rest == whole[2:]
    with pipe.store.reading() as tx:
        before = tx.for_agent("ana").messages.preceding_texts([hello.row_id, given.row_id])
    assert before == {given.row_id: asked.content}
    pipe.close()


@pytest.mark.parametrize(("question", "promoted"), [(ASKED, 0), ({"role": "assistant", "content": "Where to?"}, 1)])
def test_no_dream_makes_a_memory_of_it(tmp_path: Path, question: dict[str, str], promoted: int) -> None:
    """Given an answer that is recalled often, then it becomes a memory only where no secret was asked for."""
    dreamer = Dreamer(tmp_path)
    dreamer.say(question, GIVEN)
    dreamer.settle()
    dreamer.make_hot(GIVEN)

    counts = dreamer.dream()

    assert counts["promoted"] == promoted
    assert counts.get("left_out_secret", 0) == 1 - promoted
    dreamer.close()


def test_what_was_announced_is_redacted_wherever_it_comes(tmp_path: Path) -> None:
    """Given a password said in two parts, with an answer between, then neither a summary nor a dream has the second."""
    first = "The first half of my wifi password is easy."
    dreamer = Dreamer(tmp_path)
    dreamer.say(first, {"role": "assistant", "content": "Go on."}, "Wombat_Cello", "It rains in Faro.")
    dreamer.say("My wifi password is in the next message.", "Heron_Reed", session="t")
    dreamer.settle()
    messages = [message for message in dreamer.messages() if message.session != "t"]

    read = redact_secret_answers(messages, "")

    assert [message.content for message in read] == [first, "Go on.", REDACTED, "It rains in Faro."]
    dreamer.make_hot("Heron_Reed")
    assert dreamer.dream()["promoted"] == 0
    dreamer.close()


def test_a_dream_leaves_out_a_tag_that_is_a_secret(tmp_path: Path) -> None:
    """Given a message with a key among its tags, then the memory that a dream makes of it has the others."""
    dreamer = Dreamer(tmp_path)
    dreamer.say({"role": "user", "content": "I keep a boat in Faro.", "tags": ["boat", "ghp" + "_" + "a1b2c3d4e5" * 4]})
    dreamer.settle()
    dreamer.make_hot("I keep a boat in Faro.")
    dreamer.dream()
    with dreamer.store.reading() as tx:
        (made,) = tx.for_agent("ana").memories.iterate(MemoryFilter())
    assert made.tags == ("boat",)
    dreamer.close()
