"""Example section of the page: for our own conversation, what each question finds before and after the month."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.harness.locomo import Conversation
from benchmarks.story.world import World
from storage.memories.records import MemoryFilter

_CHARACTERS: Final = 110
# Questions asked during the month in addition to those of the demo, in other words, as people do.
ASKED_TOO: Final = (
    "Which nuts must stay out of my food?",
    "Who hides under the bed when the doorbell rings?",
    "Why do I never take a plane?",
    "Where did the piano end up?",
    "What are Mum and Dad celebrating?",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, the first result of its recall, and the memory made from that result, or None.

    `lifetime` and `accessed` are that memory's lifetime and access count.
    """

    question: str
    first: str
    memory: str | None = None
    source: str = ""
    lifetime: str = ""
    accessed: int = 0


def answers_of(world: World, conversation: Conversation) -> list[Answer]:
    """Return the present answer to each question of a conversation."""
    return [_answer(world, conversation.haystack.agent, asked.text) for asked in conversation.questions]


def example_lines(before: Sequence[Answer], after: Sequence[Answer]) -> Iterator[str]:
    """Yield the lines of the section."""
    yield "## An example"
    yield ""
    yield (
        "The same month with the conversation of `make demo`, which is our own. Nothing else was stored, and every"
        " memory was made by a job, from messages that different questions recalled or from what users said."
    )
    yield ""
    yield "| question | first result, before and after | memory made from it |"
    yield "| --- | --- | --- |"
    for one, other in zip(before, after, strict=True):
        first = f"the same: {one.first}" if one.first == other.first else f"{one.first} / {other.first}"
        kept = "-" if other.memory is None else (
            f"{other.memory} ({other.source}, {other.lifetime.replace('_', '-')}, found {other.accessed} times)"
        )  # fmt: skip
        yield f"| {one.question} | {first} | {kept} |"
    yield ""


def _answer(world: World, agent: str, question: str) -> Answer:
    first = next(iter(world.recall(agent, question, limit=1, noted=False).response.results), None)
    if first is None:
        return Answer(question, "nothing")
    first_text = _short(first.text)
    with world.store.reading() as tx:
        made = tx.for_agent(agent).memories.page(MemoryFilter(source_message=first.id), limit=1)
    if not made:
        return Answer(question, first_text)
    kept = made[0]
    return Answer(question, first_text, _short(kept.content), kept.source, kept.lifetime, kept.access_count)


def _short(text: str) -> str:
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1] + "…"
