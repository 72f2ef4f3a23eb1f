"""Split a message into sentences in the user's own words: no code, quotes, pasted text, questions or fiction.

Text that is not the user's own is covered with `COVER`, character by character, so that positions stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# A private-use character: no pattern matches it by accident.
COVER: Final = "\ue000"
# Longer messages are mostly pasted text.
MAX_MESSAGE_CHARACTERS: Final = 4_000

_APOSTROPHES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u00a0": " "})
# Code and its output, quoted lines and indented blocks: pasted text.
_PASTED: Final = r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*$|^(?: {4}|\t)[^\n]*$"
_QUOTED: Final = (
    r"\"[^\"]*\"|\u201c[^\u201d]*(?:\u201d|\Z)|\u00ab[^\u00bb]{0,400}\u00bb|\u201e[^\u201c\u201d]{0,400}[\u201c\u201d]"
    r"|(?<![\w'])'[^'\n]{1,200}(?:'[a-z][^'\n]{0,200}){0,8}'(?!\w)"  # 'so', but not an apostrophe within a word
    r"|<[^<>\n]{1,200}>|https?://\S+"
)
_FOREIGN = re.compile(_PASTED, re.DOTALL | re.MULTILINE)
_NOT_OWN = re.compile(f"{_PASTED}|{_QUOTED}", re.DOTALL | re.MULTILINE)
# Speaker labels and list marks, as in transcripts, letters and forms: these words are not the user speaking now.
LABELLED = re.compile(r"^[ \t]{0,40}(?:[-*\u2022#|]|\d{1,20}[.)]|[A-Z][\w .'-]{0,30}:(?!//))", re.MULTILINE)
# Before a colon, these lead to something the user says about themselves; any other label leads to other text.
_OWN_LABEL: Final = (
    r"(?:i|i'm|i'd|i've|my|sorry|please|and|but|so|also|remember|note|keep|take|make"
    r"|don't|fyi|btw|ps|p\.s\.|update|edit"
    r"|correction|clarification|reminder|important|fun fact|background|context|intro|for|about me|from now on)\b"
)
_LABEL: Final = rf"^[ \t]{{0,40}}(?!{_OWN_LABEL})\w(?:(?!\b(?:me|myself)\b)[\w ,'-]){{1,40}}:[ \t]{{1,40}}\S"
# What follows is not about the user: material to work on, a role, a hypothesis.
MATERIAL = re.compile(
    rf":[ \t]{{0,40}}(?:\n|\Z)|{_LABEL}"
    r"|\b(?:label|classify|annotate|tag|analy[sz]e|parse|identify|count|use)\b[^.!?\n]{0,40}\b(?:sentences?|statements?"
    r"|phrases?)\b"
    r"|\bin (?:this|the|our|my) (?:scenario|story|scene|game|role|novel|film|movie|play|campaign|song|riddle"
    r"|dialog(?:ue)?)\b"
    r"|\b(?:re-?writ|re-?phras|paraphras|translat|proof-?read|summari[sz]|transcrib|role-?play)\w{0,40}"
    r"|\b(?:write|compose|draft|continue|complete|correct|generate|create|edit|improve|finish|fix|make up|come up with)"
    r"\b[^.!?\n]{0,60}\b(?:story|poem|song|lyrics|essay|letter|e-?mail|script|dialog(?:ue)?|speech|text|sentence"
    r"|paragraph|bio|biography|profile|post|tweet|caption|review|message|reply|response|resume|cv|statement|article"
    r"|blog|grammar|scene|monologue|code|function|program|prompt|conversation|chapter|novel|character)"
    r"|\b(?:imagine|suppose|supposing|pretend|assume|assuming|hypothetical\w{0,40}|let's say|what if|act as|act like"
    r"|play the role|you are (?:an?|the)\b|you will be|as if|in character|in the voice|in the style"
    r"|from the perspective|for example|for instance|e\.g\.|such as this|fiction\w{0,40}|the following)",
    re.IGNORECASE | re.MULTILINE,
)
# A standing instruction, which uses the same words as a single task.
_STANDING = re.compile(
    r"\A\s{0,3}(?:please,?\s{1,3})?(?:from now on|going forward|in (?:the )?future|always|never)\b", re.IGNORECASE
)
# A request in the form of a question.
_ASKED_FOR = re.compile(
    r"\A\s{0,3}(?:can|could|would) you (?:please )?(?:remember that|remind me|always|never|call me)\b", re.I
)
# Words that are quoted to be discussed, with or without quotation marks.
ABOUT_WORDS = re.compile(
    r"\b(?:this|that|the) (?:\w{1,40} )?(?:line|lyrics?|quot(?:e|ation)|riddle|joke|tongue twister|proverb)\b"
    r"|\bknock,? knock\b|\bopening line\b|\byeah,? right\b(?! now)",
    re.IGNORECASE,
)
# A role-play begins, in which `I` is a character.
_GAME_BEGINS = re.compile(
    r"\b(?:let's|let us|can we|could we|i want to|we)\b[^.!?\n]{0,30}\brole-?play|\brole-?play (?:as|with|a|that)\b"
    r"|\b(?:you are|you're|you play|be) [^.!?\n]{1,60}\b(?:and|,) (?:i am|i'm|i play|i'll be)\b"
    r"|\bpretend (?:that )?(?:i|to be)\b",
    re.IGNORECASE,
)
_GAME_ENDS = re.compile(
    r"\b(?:out of character|ooc|for real now"
    r"|(?:end|stop|leave|quit|enough)\b[^.!?\n]{0,20}\b(?:role-?play\w{0,40}|game|character))\b",
    re.IGNORECASE,
)
JOKE = re.compile(
    r"\b(?:just )?kidding\b|\bjk\b|\bjoking\b|\bsarcas\w{1,40}|(?<!\w)/s\b|\bapril fools?\b", re.IGNORECASE
)
LAUGHTER = re.compile(
    r"\b(?:lol|lmao|rofl|ha(?:ha){1,40}|he(?:he){1,40})\b|"
    r"[\U0001f602\U0001f923\U0001f61c\U0001f61d\U0001f609\U0001f643]|;-?\)",
    re.IGNORECASE,
)
_ABBREVIATED: Final = (
    r"(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bProf)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)(?<!\b[A-Z])"
)
ABBREVIATED_END = re.compile(rf"{_ABBREVIATED}\.(?=\s|$|\))|[!?\u2026]+|\n+|\.\.+", re.MULTILINE)
_ASKS: Final = frozenset("?\uff1f\u061f")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the user: `text` with everything covered that is not their own, `original` as it was written."""

    text: str
    original: str

    def words(self, start: int, end: int) -> str:
        """Return what was written between two positions of `text`."""
        return self.original[start:end]


def sentences_of(message: str) -> Iterator[Sentence]:
    """Yield the sentences in which a user states something, in order; none if the message is a joke or pasted."""
    if len(message) > MAX_MESSAGE_CHARACTERS or JOKE.search(message) or ABOUT_WORDS.search(message):
        return
    covered = covered_text(message)
    if len(LABELLED.findall(covered)) > 1:
        return
    yield from _statements(covered, message)


def is_game(message: str, *, before: bool) -> bool:
    """Return whether a conversation is a role-play from this message on; `before` is whether it was one before."""
    if _GAME_ENDS.search(message):
        return False
    return before or _GAME_BEGINS.search(message) is not None


def covered_text(message: str) -> str:
    """Return a message with plain apostrophes, and with everything covered that is code, quoted or a link."""
    return _NOT_OWN.sub(lambda found: COVER * len(found[0]), message.translate(_APOSTROPHES))


def without_foreign(message: str) -> str:
    """Return a message without pasted code and quoted lines."""
    return _FOREIGN.sub(" ", message)


def _statements(covered: str, message: str) -> Iterator[Sentence]:
    start = 0
    material = _start_of_material(covered, 0)
    for mark in [*ABBREVIATED_END.finditer(covered), None]:
        stop = mark.start() if mark else len(covered)
        text = covered[start:stop]
        if stop > material:
            if not _STANDING.match(text):
                return
            material = _start_of_material(covered, stop)
        is_question = mark is not None and bool(_ASKS & set(mark[0])) and not _ASKED_FOR.match(text)
        # Laughter follows a sentence as often as it is part of it.
        following = covered[stop : stop + 8]
        if text.strip(COVER + " \t") and not is_question and not LAUGHTER.search(text + following):
            indent = len(text) - len(text.lstrip())
            yield Sentence(text[indent:].rstrip(), message[start + indent : stop].rstrip())
        start = mark.end() if mark else stop


def _start_of_material(covered: str, start: int) -> int:
    found = MATERIAL.search(covered, start)
    return found.start() if found else len(covered)
