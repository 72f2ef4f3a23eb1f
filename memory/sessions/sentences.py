"""Split messages into verbatim sentences, which summaries quote.

Code, tables and other non-prose are left out; a list item is a sentence of its own. Abbreviations, initials, numbers
and addresses do not end a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from reverie.inert import LINE_END, visible

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
# How far around the marks to look for what they end: a blank and a quotation mark, a long word.
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
_QUESTION_MARKS: Final = "?\uff1f\u061f"
_AFTER_MARKS: Final = " \t!)]\"'*_\u2019\u201d\u00bb"


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in their order, each on one line, at most 320 characters of each."""
    return [shortened(part) for block in _blocks(text) for part in _split(block)]


def is_question(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark."""
    return sentence.rstrip(_AFTER_MARKS).endswith(tuple(_QUESTION_MARKS))


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
    """Return whether a line continues the sentence before it: that one has no end, and the line is in lower case."""
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
    """Return whether the marks that were found end a sentence."""
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
