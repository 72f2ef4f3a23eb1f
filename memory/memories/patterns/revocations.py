"""Patterns for what a user takes back: `you no longer need to ...`, `forget that I want ...`.

What is taken back is looked up among the instructions in force by its words: see `takes_back`.
"""

from __future__ import annotations

import re
from typing import Final

from memory.memories.patterns.bounds import starting
from memory.memories.patterns.instruction_sentences import REPORTED, OwnWords
from memory.memories.patterns.instruction_subjects import words_of_instruction
from memory.memories.patterns.sentences import COVER
from memory.memories.patterns.statement import Statement

_MAX_WORDS: Final = 25
_MORE: Final = r"(?:any ?more|any longer|from now on|again)"
_WANT: Final = (
    r"(?:i|that i) (?:want(?:ed)?|asked for|asked|prefer(?:red)?|like[ds]?|need(?:ed)?|said|told you)(?: you)?(?: to)?"
)
_TAKEN_BACK: Final = tuple(
    starting(pattern)
    for pattern in (
        # What is named by `I want` or `the rule` is an instruction of the user's own.
        rf"(?:please )?(?:forget|never mind|scrap|drop|cancel|undo|disregard|ignore) (?:about )?(?:that )?{_WANT} "
        rf"(?P<rest>.{{1,400}})",
        r"(?:please )?(?:forget|never mind|scrap|drop|cancel|undo|remove|disregard|ignore) (?:about )?(?:the|that|my)"
        r" (?:\w{1,40} )?(?:rule|instruction|preference|request|wish|thing) (?:about|to|on|that|for|with|of)"
        r"(?: you)?(?: should)? (?P<about>)(?P<rest>.{1,400})",
        r"(?:please )?(?:forget|never mind|scrap|ignore|disregard) what i said about (?P<about>)(?P<rest>.{1,400})",
        rf"you (?:no longer (?:need|have) to|can stop|may stop|(?:don't|do not|needn't) (?:need to |have to )?)"
        rf"(?P<rest>.{{1,400}}?)(?P<more> {_MORE})?$",
        r"you can (?P<allowed>)(?P<rest>.{1,400}?) (?P<more>again)$",
        rf"(?:please )?(?:stop|quit|no need to|there's no need to) (?P<rest>.{{1,400}}?)(?P<more> {_MORE})?$",
        rf"i (?:no longer (?:want|need|prefer|care for)|(?:don't|do not) (?:want|need) )(?: you to)? ?"
        rf"(?P<rest>.{{1,400}}?)"
        rf"(?P<more> {_MORE})?$",
    )
)
# Without one of these words, such a sentence says something else more often than not.
# Before words that name an instruction without saying whether it asks for something or forbids it.
_ABOUT: Final = "about: "
_FORBIDS: Final = re.compile(r"\b(?:never|don't|do not|not|no|stop|quit|avoid|without|skip|omit)\b", re.IGNORECASE)
_PLAIN: Final = re.compile(r"(?:no longer|can stop|stop|quit|no need)\b", re.IGNORECASE)


def find_revocations(message: str) -> list[Statement]:
    """Return what the user may take back, in order: whether there is such an instruction is not known here."""
    words_of_user = OwnWords(message)
    found: list[Statement] = []
    for number, sentence in words_of_user.sentences():
        rest = _taken_back(sentence.text)
        if rest is None or REPORTED.search(sentence.text) or not words_of_user.is_addressed(number):
            continue
        text = " ".join(sentence.words(*rest.span("rest")).strip(" \t,.;:!*_").split())
        if COVER not in rest["rest"] and 0 < len(text.split()) <= _MAX_WORDS and words_of_instruction(text):
            found.append(
                Statement(
                    content=f'User took back an instruction: "{sentence.original.rstrip(" .!")}."',
                    kind="event",
                    quote=sentence.original,
                    subject=None,
                    confidence=0.95,
                    importance=0.5,
                    takes_back=_prefix(rest) + text,
                )
            )
    return found


def takes_back(revoked: str, instruction: str) -> float:
    """Return how well words that take something back fit an instruction, from 0 (not at all) to 1.

    All words that matter must be among the instruction's: a word too many names something else. Who no longer wants
    emojis takes back `use emojis`, and says `never use emojis` once more.
    """
    named = revoked.removeprefix(_ABOUT)
    words, of_instruction = words_of_instruction(named), words_of_instruction(instruction)
    if not words or not words <= of_instruction:
        return 0.0
    if named == revoked and bool(_FORBIDS.search(named)) != bool(_FORBIDS.search(instruction)):
        return 0.0
    return len(words) / len(of_instruction)


def _prefix(found: re.Match[str]) -> str:
    """Return what makes an instruction of the words of a match: what is allowed again was forbidden."""
    groups = found.re.groupindex
    return _ABOUT if "about" in groups else "never " if "allowed" in groups else ""


def _taken_back(text: str) -> re.Match[str] | None:
    for pattern in _TAKEN_BACK:
        found = pattern.match(text)
        if found is not None:
            named = "more" not in pattern.groupindex or found["more"] or _PLAIN.search(text, 0, found.start("rest"))
            return found if named else None
    return None
