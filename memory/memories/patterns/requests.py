"""Patterns for what users ask to be remembered or reminded of."""

from __future__ import annotations

import re
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.bounds import BLANKS, starting
from memory.memories.patterns.sentences import COVER, Sentence
from memory.memories.patterns.statement import Kind, Statement
from memory.memories.patterns.times import end_of

MAX_WORDS: Final = 40
MIN_WORDS: Final = 2
# The minimum for a statement that is not about the user: a shorter one is usually a saying.
_MIN_WORDS_OF_ANYTHING: Final = 4

_ABOUT_ME: Final = r"(?=(?:\s{0,3},)?\s{1,3}(?:i|my|we|our|i'm)\b)"
_POLITELY: Final = r"(?:(?:please|can you|could you|would you|you should|i want you to)\s{1,3}){0,2}"
# These words ask to remember anything; `note that` and the like may be about the current task.
_REMEMBER_ANYTHING = starting(
    rf"{_POLITELY}(?:remember(?:{BLANKS}that|\s{{0,3}}:)|(?:don't|do not|never) forget(?:{BLANKS}that|\s{{0,3}}:)"
    r"|for (?:future|your) reference\s{0,3}[,:])\s{0,3}"
    r"(?P<rest>(?:(?:the|a|an|there|on|in|at)\s|(?-i:[A-Z])).{0,400})",
)
# Words about the current task: the user does not ask for a lasting memory.
_THE_TASK_AT_HAND = re.compile(
    r"\b(?:the (?:\w{1,40} )?(?:question|answer|task|essay|text|story|code|function"
    r"|exercise|graph|draft|document|paragraph"
    r"|sentence|triangle|equation|output|input|data|user|reader|audience|goal|plot|earth|sun|customer)|x|y|n)\b",
    re.IGNORECASE,
)
# `Remember that night`: a noun follows, not a clause that states something.
_THAT_ONE: Final = (
    r"(?!(?:time|day|night|evening|morning|weekend|summer|winter|spring|year|trip|scene|movie|film|song|moment|feeling"
    r"|conversation|story|guy|girl|man|woman|place|one|thing|part|episode|book|game|party|photo|picture|old|crazy)\b)"
)
_REMEMBER = starting(
    rf"{_POLITELY}"
    rf"(?:(?:always{BLANKS})?remember(?:{BLANKS}that{BLANKS}{_THAT_ONE}|\s{{0,3}}:|{_ABOUT_ME})"
    rf"|(?:don't|do not|never) forget(?:{BLANKS}that|\s{{0,3}}:|{_ABOUT_ME})"
    r"|keep in mind(?:\s{1,3}that|\s{0,3}:)|make a note(?:\s{1,3}that|\s{1,3}of this\s{0,3}:"
    r"|\s{0,3}:)|take note(?:\s{1,3}that|\s{0,3}:)"
    r"|note(?:\s{1,3}that|\s{0,3}:)|for the record\s{0,3}[,:]|for (?:future|your) reference\s{0,3}[,:])"
    r"\s{0,3},?\s{0,3}(?P<rest>\S.{0,400})",
)
_FROM_DATE = starting(
    rf"(?P<rest>(?:starting|beginning|as of|from){BLANKS}(?:{words.DATE}|{words.MONTHS}"
    rf"|next (?:week|month|year|{words.WEEKDAYS})|{words.WEEKDAYS})(?:{BLANKS}on(?:wards?)?)?\s{{0,3}},?"
    r"\s{1,3}(?:i|my|we|our|i'm|i'll|we'll)\b.{0,400})",
)
_REMIND = starting(
    rf"{_POLITELY}(?:remind me|don't let me forget){BLANKS}"
    r"(?P<rest>(?:(?:on|in|at|by|this|next|every|tomorrow|tonight|today)\b[\w :]{0,30}?\s)?(?:to"
    r"|that|about)\s{1,3}\S.{0,400})",
)
_OWN = re.compile(r"\b(?:i|i'm|i've|i'll|i'd|my|me|mine|we|we're|we've|we'll|our|us)\b", re.IGNORECASE)
_VAGUE = starting(r"^(?:it|this|these|those|that|they|he|she|you|your|there|what|all|everything|nothing|if|when)\b")
_YOU = re.compile(r"\b(?:you|your|you're|yourself|u)\b", re.IGNORECASE)
_SECRET = re.compile(
    r"\b(?:pass(?:word|code|phrase|wd)|pin|cvv|cvc|secret|token|api[ -]?key|private key|ssn|social security|card number"
    r"|iban|credentials?)\b",
    re.IGNORECASE,
)


def to_remember(sentence: Sentence) -> Sentence | None:
    """Return what a sentence asks to be remembered; None if it does not ask that."""
    found = _REMEMBER.match(sentence.text)
    if found is None:
        return None
    start, end = found.span("rest")
    return Sentence(sentence.text[start:end], sentence.words(start, end))


def match(sentence: Sentence, at: int) -> Statement | None:
    """Return what a sentence asks from its first word on, or None. `at` is the time of the message (microseconds)."""
    if _SECRET.search(sentence.text):
        return None
    for patterns, make in _RULES:
        for pattern in patterns:
            found = pattern.match(sentence.text)
            text = _rest(sentence, found) if found is not None else None
            statement = make(text, sentence.original, at) if text is not None else None
            if statement is not None:
                return statement
    return None


def _rest(sentence: Sentence, found: re.Match[str]) -> str | None:
    """Return what is asked, as it was written; None if it cannot be understood by itself."""
    text = sentence.words(*found.span("rest")).strip(" \t,.;:!*_")
    is_whole = COVER not in found["rest"] and text.count("(") == text.count(")")
    return text if is_whole and MIN_WORDS <= len(text.split()) <= MAX_WORDS else None


def _remembered(text: str, quote: str, _at: int) -> Statement | None:
    if not _OWN.search(text) or _VAGUE.match(text) or _YOU.search(text):
        return None
    return _statement(f"User asked to remember: {_lower_first(text)}.", "fact", quote, importance=0.8)


def _remembered_anything(text: str, quote: str, _at: int) -> Statement | None:
    is_short = len(text.split()) < _MIN_WORDS_OF_ANYTHING
    if is_short or _VAGUE.match(text) or _YOU.search(text) or _THE_TASK_AT_HAND.search(text):
        return None
    return _statement(f"User asked to remember: {_lower_first(text)}.", "fact", quote, importance=0.8)


def _dated_change(text: str, quote: str, _at: int) -> Statement | None:
    return _statement(f"User said: {_lower_first(text)}.", "event", quote, importance=0.6)


def _task(text: str, quote: str, at: int) -> Statement | None:
    end = end_of(text, at)
    is_own = _OWN.search(text) is not None
    # "Remind me about X" without a time asks for information on X; it is a task only if X is the user's own.
    if re.match(r"about\b", text, re.IGNORECASE) and not is_own and end is None:
        return None
    # In the third person, `my` would refer to somebody else.
    content = f'User asked: "Remind me {text}."' if is_own else f"User asked to be reminded {text}."
    return _statement(content, "task", quote, importance=0.7, expires_at=end)


def _statement(content: str, kind: Kind, quote: str, *, importance: float, expires_at: int | None = None) -> Statement:
    return Statement(
        content=content, kind=kind, quote=quote, subject=None, confidence=0.95, importance=importance,
        lifetime="short_term" if kind == "task" else "long_term", expires_at=expires_at,
    )  # fmt: skip


def _lower_first(text: str) -> str:
    """Return a text with a lower-case first letter, unless the first word is `I` or a name."""
    return text[:1].lower() + text[1:] if text.split()[0].lower() in words.LOWER_CASE_STARTS else text


_RULES: Final = (
    ((_REMEMBER,), _remembered),
    ((_REMEMBER_ANYTHING,), _remembered_anything),
    ((_FROM_DATE,), _dated_change),
    ((_REMIND,), _task),
)
