"""The verbatim sentences of a conversation that a summary may quote, with speaker, date and stretch.

Tool results, system instructions, code, tables and secrets are left out; a list item is a sentence of its own.
Abbreviations, initials, numbers and addresses do not end a sentence. A short answer carries its question, without which
it would say nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memory.questions import is_question
from memory.secrets import redacted
from reverie.clock import from_micros
from reverie.counts import counted
from reverie.inert import LINE_END, visible
from storage.pipeline.records import MessageRecord
from storage.recall.words import words_of
from storage.sessions.summaries import MAX_QUESTION, Line, speaker_label

# Longer sentences are shortened to their beginning: a summary has no room for more.
MAX_CHARACTERS: Final = 320
# At least this share of prose is letters and blanks; of code, logs and JSON it is less.
_PROSE: Final = 0.6

_FENCES: Final = ("```", "~~~")
_ITEM = re.compile(r"^\s*(?:[-*+\u2022\u2013]|\d{1,3}[.)]|[a-z][.)])\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s|^\s*[-=_*]{3,}\s*$")
_NO_PROSE = re.compile(r"^\s*(?:\||>|[{}\[\]<]|Traceback |File \"|\$ |>>> |(?:def|class|import|from|return|SELECT)\s)")
# The end of a sentence: its marks, the quotation or bracket they close, and a blank, which CJK marks do not need.
_END = re.compile(
    "(?<![.!?\u2026])([.!?\u2026]++[\"'\u2019\u201d)\\]\u00bb*_]*+)(?=\\s|$)|([\u3002\uff01\uff1f]+[\u300d\u300f\u201d]?)"
)
_BEFORE_WORD = re.compile(r"[\s(\"'\u201c]")
# How much text around the marks is looked at: before them a long word, after them a quotation mark and a blank.
_LOOK_AHEAD: Final = 8
_LOOK_BACK: Final = 24
# Abbreviations whose full stop never ends a sentence.
_TITLES: Final = """
mr mrs ms mx dr prof st rev gen col sgt capt lt hon fr sr jr e.g i.e eg ie vs cf al approx ca no nos vol fig eq dept
est min max misc resp incl excl tel ext
"""
_NEVER_LAST: Final = frozenset(_TITLES.split())
# Abbreviations that may end a sentence: they do if a capital letter follows.
_ENDINGS: Final = """
etc inc ltd co corp bros a.m p.m am pm u.s u.k u.n e.u d.c ph.d m.d b.a m.a jan feb mar apr jun jul aug sep sept oct
nov dec mon tue wed thu fri sat sun
"""
_PERHAPS_LAST: Final = frozenset(_ENDINGS.split())


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in their order, each on one line, at most 320 characters of each."""
    return [shortened(part) for block in _blocks(text) for part in _split(block)]


def shortened(sentence: str) -> str:
    """Return a sentence as it is, or its beginning up to the end of a word with an ellipsis."""
    if len(sentence) <= MAX_CHARACTERS:
        return sentence
    head = sentence[: MAX_CHARACTERS - 1]
    blank = head.rfind(" ", MAX_CHARACTERS // 2)
    return (head[:blank] if blank > 0 else head).rstrip(" ,;:") + "\u2026"


def _blocks(text: str) -> Iterator[str]:
    """Yield blocks of prose: a line, with the following lines that continue its sentence."""
    block: list[str] = []
    for raw in _without_code(LINE_END.split(text)):
        line = " ".join(visible(raw).split())
        prose = bool(line) and _is_prose(raw, line)
        if block and not (prose and not _ITEM.match(raw) and _continues(block[-1], line)):
            yield " ".join(block)
            block = []
        if prose:
            bare = _ITEM.sub("", line)
            block += [bare] if bare else []
    if block:
        yield " ".join(block)


def _without_code(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines outside of code fences, an empty one per fence. An unclosed fence extends to the end."""
    fence = ""
    for line in lines:
        begins = line.lstrip()[:3]
        if fence:
            fence = "" if begins == fence else fence
        elif begins in _FENCES and begins not in line.lstrip()[3:]:
            fence = begins
            yield ""
        else:
            yield line


def _is_prose(raw: str, line: str) -> bool:
    if _HEADING.match(raw) or _NO_PROSE.match(raw):
        return False
    prose_characters = sum(character.isalpha() or character.isspace() for character in line)
    return prose_characters >= _PROSE * len(line)


def _continues(block: str, line: str) -> bool:
    """Return whether a line continues the sentence before it, which has no end: the line is in lower case."""
    return line[0].islower() and block[-1] not in ".!?:;\u2026\u3002\uff01\uff1f"


def _split(block: str) -> Iterator[str]:
    start = 0
    for found in _END.finditer(block):
        if found.group(1) and not _ends(block, found):
            continue
        sentence = block[start : found.end()].strip()
        if sentence:
            yield sentence
        start = found.end()
    rest = block[start:].strip()
    if rest:
        yield rest


def _ends(block: str, found: re.Match[str]) -> bool:
    """Return whether these marks end a sentence."""
    marks, following = found.group(1), block[found.end() : found.end() + _LOOK_AHEAD].lstrip(" \"'(\u201c*_")[:1]
    if not following:
        return True
    if marks.startswith(("..", "\u2026")):
        return not following.islower()
    if not marks.startswith("."):
        return marks[-1] in "!?" or not following.islower()
    last = _BEFORE_WORD.split(block[max(0, found.start() - _LOOK_BACK) : found.start()])[-1]
    word = last.lstrip("([\u201c\"'").lower()
    if word in _NEVER_LAST or (len(word) == 1 and word.isalpha() and word != "i"):
        return False
    return word not in _PERHAPS_LAST or following.isupper()


# A pause this long starts a new stretch of the conversation; so does this number of messages.
_PAUSE_MICROS: Final = 3 * 3_600 * 1_000_000
_STRETCH_MESSAGES: Final = 10
# Fewer words are not a sentence. An answer of at most the second number of words is quoted with its question.
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

    `known` are the names of the speakers, which carry no information.
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
    """Return lines for messages without sentences: they name the tools that were used, or say there was no text."""
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
