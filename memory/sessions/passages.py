"""What a summary may quote of a conversation: its sentences, with who said them, when, and in which stretch of it.

Answers of tools, instructions to the system, code and secrets are not among them. A short answer carries the question
that it answers: alone it would say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memory.memories.secrets import redacted
from memory.sessions.sentences import asks, sentences_of
from reverie.clock import from_micros
from storage.pipeline.records import MessageRecord
from storage.recall.words import words_of
from storage.sessions.summary_text import MAX_QUESTION, Line, speaker_label

# After such a pause a conversation begins anew; and so many messages are a stretch in any case.
_PAUSE_MICROS: Final = 3 * 3_600 * 1_000_000
_STRETCH_MESSAGES: Final = 10
# Fewer words than this are no sentence; an answer of fewer than so many is told with its question.
_FEWEST_WORDS: Final = 4
_SHORT_ANSWER_WORDS: Final = 6
_MOST_TOOLS: Final = 8
_LINE_IMPORTANCE: Final = 0.5
# The patterns of secrets take their time on very long words.
_REDACTED_CHARACTERS: Final = 4_096
# So much of a sentence is enough to know it again.
_ENOUGH_TO_TELL: Final = 40
_TOLD_ROLES: Final = ("user", "assistant")

# The text of a chunk and its unit vector.
ChunkVector = tuple[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence: its line, its bare text, the importance of its message, its stretch, and its vector if it has one.

    `known` are names that say nothing in it: of those who speak.
    """

    line: Line
    text: str
    importance: float
    stretch: int
    asks: bool = False
    known: frozenset[str] = frozenset()
    vector: NDArray[np.float32] | None = None


def passages_of(
    messages: Sequence[MessageRecord], vectors: Mapping[int, Sequence[ChunkVector]] | None = None
) -> list[Passage]:
    """The passages of these messages, in their order; `vectors` has the chunks of each message's row.

    Where nothing makes a full sentence, shorter ones are taken.
    """
    for fewest_words in (_FEWEST_WORDS, 1):
        found = list(_passages(messages, vectors or {}, fewest_words))
        if found:
            return found
    return []


def passages_of_lines(lines: Sequence[Line]) -> list[Passage]:
    """The passages of a summary: its lines, to be condensed further."""
    known = frozenset(name for line in lines for name in line.speaker.split())
    return [
        Passage(line, line.text, _LINE_IMPORTANCE, place // _STRETCH_MESSAGES, asks(line.text), known)
        for place, line in enumerate(lines)
    ]


def unquoted(messages: Sequence[MessageRecord]) -> list[Line]:
    """What is told of messages that a summary cannot quote: which tools were used, or that there was no text at all."""
    tools = Counter(m.tool_name or "a tool" for m in messages if m.role == "tool")
    lines = []
    if tools:
        used = ", ".join(f"{speaker_label(name)} ({times})" for name, times in tools.most_common(_MOST_TOOLS))
        lines.append(Line(_date(messages[-1]), "tools used", used))
    if not tools and not any(m.role in _TOLD_ROLES and m.content.strip() for m in messages):
        lines.append(Line(_date(messages[-1]), "nobody", f"({len(messages)} messages without a text)"))
    return lines


def _passages(
    messages: Sequence[MessageRecord], vectors: Mapping[int, Sequence[ChunkVector]], fewest_words: int
) -> Iterator[Passage]:
    question, asker = "", ""
    known = frozenset(name for message in messages for name in (message.name or "").split())
    for message, stretch in zip(messages, _stretches(messages), strict=True):
        if message.role not in _TOLD_ROLES:
            continue
        speaker = speaker_label(message.name or message.role)
        sentences = sentences_of(_without_secrets(message.content))
        for place, sentence in enumerate(sentences):
            words = len(words_of(sentence))
            answers = question if place == 0 and asker != speaker and words <= _SHORT_ANSWER_WORDS else ""
            if words < fewest_words and not (answers and words):
                continue
            label = f'{speaker}, asked "{answers}"' if answers else speaker
            yield Passage(
                line=Line(_date(message), label, sentence),
                text=f"{answers} {sentence}" if answers else sentence,
                importance=message.importance,
                stretch=stretch,
                asks=asks(sentence),
                known=known,
                vector=_vector_of(sentence, vectors.get(message.row_id, ())),
            )
        question, asker = _last_question(sentences), speaker


def _without_secrets(text: str) -> str:
    """A text with its secrets redacted, a long one in parts cut at the ends of lines where there are any."""
    parts = []
    start = 0
    while start < len(text):
        end = start + _REDACTED_CHARACTERS
        if end < len(text):
            end = text.rfind("\n", start + 1, end) + 1 or text.rfind(" ", start + 1, end) + 1 or end
        parts.append(redacted(text[start:end]))
        start = end
    return "".join(parts)


def _last_question(sentences: Sequence[str]) -> str:
    """What a message asks at its end, as a label can hold it; empty where it ends with no question."""
    last = sentences[-1] if sentences else ""
    return last.replace(":", ",") if asks(last) and len(last) <= MAX_QUESTION else ""


def _stretches(messages: Sequence[MessageRecord]) -> list[int]:
    """The stretch of each message: a pause begins another, and so does every tenth message."""
    found: list[int] = []
    length = 0
    for place, message in enumerate(messages):
        paused = place > 0 and message.created_at - messages[place - 1].created_at > _PAUSE_MICROS
        begins = place == 0 or paused or length == _STRETCH_MESSAGES
        length = 1 if begins else length + 1
        found.append((found[-1] if found else -1) + begins)
    return found


def _vector_of(sentence: str, chunks: Sequence[ChunkVector]) -> NDArray[np.float32] | None:
    """The vector of the chunk in which a sentence stands."""
    begins = sentence[:_ENOUGH_TO_TELL]
    return next((vector for text, vector in chunks if begins in text), chunks[0][1] if chunks else None)


def _date(message: MessageRecord) -> str:
    return from_micros(message.created_at).strftime("%Y-%m-%d")
