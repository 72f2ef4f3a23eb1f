"""The sentences of a conversation that a summary may quote, with speaker, date and stretch.

Tool results, system instructions, code and secrets are left out. A short answer carries its question, without which it
would say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memory.memories.secrets import redacted
from memory.sessions.sentences import is_question, split_sentences
from reverie.clock import from_micros
from reverie.counts import counted
from storage.pipeline.records import MessageRecord
from storage.recall.words import words_of
from storage.sessions.summary_text import MAX_QUESTION, Line, speaker_label

# A pause this long starts a new stretch of the conversation; so does this number of messages.
_PAUSE_MICROS: Final = 3 * 3_600 * 1_000_000
_STRETCH_MESSAGES: Final = 10
# Fewer words are not a sentence; an answer of at most this many words is quoted with its question.
_MIN_WORDS: Final = 4
_SHORT_ANSWER_WORDS: Final = 6
_MAX_TOOLS: Final = 8
_LINE_IMPORTANCE: Final = 0.5
# Texts are redacted in parts: the patterns of secrets are slow on very long words.
_REDACTED_CHARACTERS: Final = 4_096
# A sentence is found in a chunk by this much of its beginning.
_PREFIX_CHARACTERS: Final = 40
_QUOTED_ROLES: Final = ("user", "assistant")

# The text of a chunk and its unit vector.
ChunkVector = tuple[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence: its summary line, its bare text, its message's importance, its stretch, and its vector if any.

    `known` are names that carry no information in it: those of the speakers.
    """

    line: Line
    text: str
    importance: float
    stretch: int
    is_question: bool = False
    known: frozenset[str] = frozenset()
    vector: NDArray[np.float32] | None = None


def passages_of(
    messages: Sequence[MessageRecord], vectors: Mapping[int, Sequence[ChunkVector]] | None = None
) -> list[Passage]:
    """Return the passages of these messages, in their order; `vectors` has the chunks of each message by its row.

    Without any full sentence, shorter ones are returned.
    """
    for min_words in (_MIN_WORDS, 1):
        found = list(_passages(messages, vectors or {}, min_words))
        if found:
            return found
    return []


def passages_of_lines(lines: Sequence[Line]) -> list[Passage]:
    """Return the lines of a summary as passages, to condense it further."""
    known = frozenset(name for line in lines for name in line.speaker.split())
    return [
        Passage(line, line.text, _LINE_IMPORTANCE, position // _STRETCH_MESSAGES, is_question(line.text), known)
        for position, line in enumerate(lines)
    ]


def unquotable_lines(messages: Sequence[MessageRecord]) -> list[Line]:
    """Return lines for what cannot be quoted: the tools that were used, or that there was no text at all."""
    tools = Counter(m.tool_name or "a tool" for m in messages if m.role == "tool")
    lines = []
    if tools:
        used = ", ".join(f"{speaker_label(name)} ({times})" for name, times in tools.most_common(_MAX_TOOLS))
        lines.append(Line(_date(messages[-1]), "tools used", used))
    if not tools and not any(m.role in _QUOTED_ROLES and m.content.strip() for m in messages):
        lines.append(Line(_date(messages[-1]), "nobody", f"({counted(len(messages), 'message')} without a text)"))
    return lines


def _passages(
    messages: Sequence[MessageRecord], vectors: Mapping[int, Sequence[ChunkVector]], min_words: int
) -> Iterator[Passage]:
    question, asker = "", ""
    known = frozenset(name for message in messages for name in (message.name or "").split())
    for message, stretch in zip(messages, _stretches(messages), strict=True):
        if message.role not in _QUOTED_ROLES:
            continue
        speaker = speaker_label(message.name or message.role)
        sentences = split_sentences(_without_secrets(message.content))
        for position, sentence in enumerate(sentences):
            words = len(words_of(sentence))
            answered = question if position == 0 and asker != speaker and words <= _SHORT_ANSWER_WORDS else ""
            if words < min_words and not (answered and words):
                continue
            label = f'{speaker}, asked "{answered}"' if answered else speaker
            yield Passage(
                line=Line(_date(message), label, sentence),
                text=f"{answered} {sentence}" if answered else sentence,
                importance=message.importance,
                stretch=stretch,
                is_question=is_question(sentence),
                known=known,
                vector=_vector_of(sentence, vectors.get(message.row_id, ())),
            )
        question, asker = _last_question(sentences), speaker


def _without_secrets(text: str) -> str:
    """Redact the secrets of a text, a long one in parts that end at line or word ends where possible."""
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
    """Return the question at the end of a message in a form that fits a label; empty if there is none."""
    last = sentences[-1] if sentences else ""
    return last.replace(":", ",") if is_question(last) and len(last) <= MAX_QUESTION else ""


def _stretches(messages: Sequence[MessageRecord]) -> list[int]:
    """Return the stretch number of each message: a pause starts a new one, and so does every tenth message."""
    found: list[int] = []
    length = 0
    for position, message in enumerate(messages):
        paused = position > 0 and message.created_at - messages[position - 1].created_at > _PAUSE_MICROS
        starts = position == 0 or paused or length == _STRETCH_MESSAGES
        length = 1 if starts else length + 1
        found.append((found[-1] if found else -1) + starts)
    return found


def _vector_of(sentence: str, chunks: Sequence[ChunkVector]) -> NDArray[np.float32] | None:
    """Return the vector of the chunk that contains a sentence, else that of the first chunk."""
    prefix = sentence[:_PREFIX_CHARACTERS]
    return next((vector for text, vector in chunks if prefix in text), chunks[0][1] if chunks else None)


def _date(message: MessageRecord) -> str:
    return from_micros(message.created_at).strftime("%Y-%m-%d")
