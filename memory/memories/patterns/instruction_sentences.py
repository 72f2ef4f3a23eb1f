"""The sentences of a message in which a user may instruct the agent: their own words, outside tasks and quotations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from memory.memories.patterns.bounds import MAX_SENTENCE_CHARACTERS, starting
from memory.memories.patterns.instruction_words import HORIZON
from memory.memories.patterns.sentences import (
    ABBREVIATED_END,
    ABOUT_WORDS,
    COVER,
    JOKE,
    LABELLED,
    LAUGHTER,
    MATERIAL,
    MAX_MESSAGE_CHARACTERS,
    Sentence,
    covered_text,
)

# Words with which people lead into a request.
_LEAD_IN = starting(
    r"(?:(?:so|well|also|ok(?:ay)?|hi|hey|hello|oh|and|but|btw|by the way|fyi|actually|anyway|plus|yes|yeah|yep|yup|no"
    r"(?=,)|nope|nah|sure|right|thanks|thank you|thx|great|cool|nice|awesome|perfect|just so you know|you know|alright"
    r"|good (?:morning|afternoon|evening)|that helps|and also|one more thing|another thing"
    r"|quick thing|remember(?=\s{0,3}:)"
    r"|lastly|finally|again|ps|p\.s\.)"
    r"(?: there)?(?:\s{0,3}[,!:\u2013\u2014-]{1,40})?\s{1,3}){1,5}",
)
# Whoever writes this wants to undo what the agent was told by others, or hands it a part to play.
_OVERRIDE = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|drop)\b[^.!?\n]{0,40}\b(?:instructions?|prompts?|rules|everything"
    r"|guidelines|restrictions|above|training)\b"
    r"|\bsystem (?:prompt|message)\b|\byou (?:are|must|will) now\b|\bjailbreak|\bdeveloper mode\b|\bunrestricted\b"
    r"|\b(?:without|no) (?:any )?(?:restrictions|filters?|limits|censorship)\b|\b(?:never|don't|not) refuse\b|"
    r"(?-i:\bDAN\b)"
    r"|^\s{0,3}(?:system|assistant|developer)\s{0,3}:|<\|?/?(?:system|im_start|inst)",
    re.IGNORECASE | re.MULTILINE,
)
# Said by or about somebody else, in jest, or to override what the agent was told by others.
REPORTED = re.compile(
    r"\b(?:said|says|told|tells|asked|asks|wants me|wants us|wrote|writes|claims (?:that|to)|thinks|believes"
    r"|according to|motto|proverb"
    r"|(?:they|people|folks) say|used to say|sayings?|lyrics?|quote|wouldn't it|i wish|i guess|as if)\b",
    re.IGNORECASE,
)
_PART_TO_PLAY = re.compile(
    r"\b(?:act(?:ing)? (?:as|like)|pretend|role-?play\w{0,40}|imagine|suppose|simulate|impersonate|hypothetical\w{0,40}"
    r"|let's play|think of yourself|you(?:'re| are| will be)(?: now)? (?:an?|the|my)\b(?! (?:best|great|star|genius"
    r"|legend|lifesaver))"
    r"|from now on,? you(?:'re| are| will be)\b|stay in character|character|your (?:task|role|job) is)",
    re.IGNORECASE,
)
# A mail or chat that was pasted: from here on the words are somebody else's.
_PASTED_MAIL = re.compile(
    r"^[ \t]{0,40}(?:from|to|cc|subject|sent|date|betreff|von|an)\s{0,3}:\s|^[ \t]{0,40}-{2,}[ \t]{0,40}"
    r"(?:original|forwarded)"
    r"|^[ \t]{0,40}begin forwarded message|\bwrote\s{0,3}:?[ \t]{0,40}$|^[ \t]{0,40}(?:dear"
    r"|hi|hello|hey) [A-Z][\w .]{0,30},[ \t]{0,40}\n",
    re.IGNORECASE | re.MULTILINE,
)
_CLOSING = re.compile(
    r"^[ \t]{0,40}(?:(?:best|kind|warm)(?:est)? (?:regards|wishes)|regards|sincerely"
    r"|yours (?:truly|sincerely|faithfully)"
    r"|cheers|best|thanks),?[ \t]{0,40}\n{1,10}[ \t]{0,40}[A-Z]",
    re.IGNORECASE | re.MULTILINE,
)
_TAGGED = re.compile(r"<(\w{1,40}+)[^<>]{0,400}+>.*?(?:</\1>|\Z)", re.DOTALL)
_DATA = re.compile(r"\A\s*+[\[{<]")
_INTRODUCES = re.compile(
    r"\b(?:here(?:'s| is| are)|this is|see|below|attached|following|(?:got|received|found|read) (?:this|the|a))\b"
    r"[^.!?\n]{0,60}:[ \t]{0,40}(?:\n|\Z)|\b(?:article|mail|e-?mail|letter|document"
    r"|text|page|file|readme|guideline|manual|"
    r"message)\b[^.!?\n]{0,40}:[ \t]{0,40}(?:\n|(?=\S))",
    re.IGNORECASE,
)
_REQUESTED = starting(
    r"(?:please )?(?:(?:can|could|would|will) you (?:please |kindly )?(?:always|never|stop|call me|address me|refer"
    r" to me"
    r"|from now on|keep your|use)\b|would you mind\b)",
)
_ANY_REQUEST = starting(r"(?:please )?(?:(?:can|could|would|will) you|would you mind)\b")
_LASTS = re.compile(rf"\b{HORIZON}\b", re.IGNORECASE)
_STANDING_REQUEST = starting(
    r"\s{0,3}(?:(?:and|also|please),?\s{1,3}){0,5}(?:when(?:ever)? (?:you|i)|every time"
    r"|each time|always|never|i (?:prefer|want"
    r"|like)"
    r"|your |keep your|if i|for my|in my|stop|write all|format all|use .{0,400} from now on"
    r"|i want you to (?:always|never)"
    r"|(?:a )?(?:new|one|another|house|general|standing|quick|small) (?:rule|thing|request|preference)\b"
    r"|i would like you to (?:address|call)|i'd like you to always|remember that i|for future|when\w{0,40} drafting)\b",
)
_SHORT_CHARACTERS: Final = 80
_ASKS: Final = frozenset("?\uff1f\u061f")


class OwnWords:
    """A message as the sentences in which its user may instruct the agent.

    Most sentences match no pattern, so what is costly, whether a message is a joke, a game or a pasted document, is
    only looked at for a sentence that does: `is_addressed`.
    """

    def __init__(self, message: str) -> None:
        """Cut a message into sentences; one that is too long or no prose has none."""
        self._message = message
        self._covered = ""
        self._marks: list[tuple[int, int, str]] = []
        if len(message) <= MAX_MESSAGE_CHARACTERS and not _DATA.match(message):
            self._covered = _TAGGED.sub(lambda found: COVER * len(found[0]), covered_text(message))
            self._marks = list(_spans(self._covered))

    def sentences(self, request: re.Pattern[str] = _REQUESTED) -> Iterator[tuple[int, Sentence]]:
        """Yield the number and the words of each sentence, without what leads into it; of questions only requests."""
        for number, (start, stop, mark) in enumerate(self._marks):
            body = self._body(start, stop)
            if (
                body.text
                and len(body.text) <= MAX_SENTENCE_CHARACTERS
                and not (_ASKS & set(mark) and not request.match(body.text))
            ):
                yield number, body

    def is_addressed(self, number: int) -> bool:
        """Return whether a sentence that looks like an instruction is one, and lasts, by what is around it."""
        start, stop, _ = self._marks[number]
        return (
            self._is_prose
            and start < self._pasted_from
            and not LAUGHTER.search(self._covered[start : stop + 8])
            and (self._lasts(number) or not any(self._is_task(earlier) for earlier in range(number + 1)))
        )

    @property
    def is_short(self) -> bool:
        """Return whether the message has hardly more than one short sentence."""
        return len(self._covered) <= _SHORT_CHARACTERS

    @cached_property
    def _is_prose(self) -> bool:
        """Return whether the message is the user's own: no joke, no game, nothing that was pasted as a whole."""
        return not any(
            pattern.search(self._message) for pattern in (JOKE, ABOUT_WORDS, _OVERRIDE, _PART_TO_PLAY, _CLOSING)
        ) and (len(LABELLED.findall(self._covered)) <= 1)

    @cached_property
    def _pasted_from(self) -> int:
        found = (pattern.search(self._covered) for pattern in (_PASTED_MAIL, _INTRODUCES))
        return min((one.start() for one in found if one), default=len(self._covered))

    def _lasts(self, number: int) -> bool:
        """Return whether a sentence says that it lasts longer than the task it stands in or behind."""
        start, stop, _ = self._marks[number]
        if _LASTS.search(self._covered, start, stop):
            return True
        behind_task = any(self._is_task(earlier) for earlier in range(number))
        return not behind_task and _STANDING_REQUEST.match(self._body(start, stop).text) is not None

    def _is_task(self, number: int) -> bool:
        start, stop, _ = self._marks[number]
        if not MATERIAL.search(self._covered[start:stop]):
            return False
        return not (_LASTS.search(self._covered, start, stop) or _STANDING_REQUEST.match(self._body(start, stop).text))

    def _body(self, start: int, stop: int) -> Sentence:
        text = self._covered[start:stop]
        indent = len(text) - len(text.lstrip())
        found = _LEAD_IN.match(text[indent:])
        first = indent + (found.end() if found else 0)
        return Sentence(text[first:].rstrip(), self._message[start + first : stop].rstrip())


def spoken_text(message: str) -> str:
    """Return the sentences of a message that its user may have addressed to the agent, one a line."""
    words_of_user = OwnWords(message)
    spoken = ((number, sentence.text) for number, sentence in words_of_user.sentences(_ANY_REQUEST))
    return "\n".join(text.replace(COVER, " ") for number, text in spoken if words_of_user.is_addressed(number))


def _spans(covered: str) -> Iterator[tuple[int, int, str]]:
    """Yield where sentences start and end, and the mark that ends each."""
    start = 0
    for mark in ABBREVIATED_END.finditer(covered):
        yield start, mark.start(), mark[0]
        start = mark.end()
    yield start, len(covered), ""
