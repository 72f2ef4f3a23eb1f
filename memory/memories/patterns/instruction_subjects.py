"""The subject of a standing instruction: two with the same subject cannot both be in force, the newer one holds.

`Always use tabs` and `never use tabs` have one subject, as have `answer in English` and `answer in German`. Two that
are about the same thing in other words have two subjects, and both are told: with their dates, so that the newer is
known.
"""

from __future__ import annotations

import re
from typing import Final

from memory.memories.patterns import instruction_words as words
from memory.memories.patterns.bounds import REST, starting

MAX_CHARACTERS: Final = 120

_PREFIX: Final = "instruction: "
_CONDITION = re.compile(
    r"(?:\b(?:when|whenever|if|every time|each time|any ?time|while|unless)\b|\b(?:for|in) (?:my|all my|every"
    r"|each)\b)[^,]{0,400}",
    re.IGNORECASE,
)
# Things that can be had in one way at a time, each with the words for its ways.
_ANSWERS: Final = r"\b(?:answers|replies|responses|explanations)\b"
_LENGTH: Final = r"\b(?:short|brief|concise|long|detailed|lengthy|thorough|verbose)(?:er)?\b"
_SPOKEN_IN: Final = (
    r"\b(?:answer|respond|reply|speak|talk|chat|communicate|write to me|switch|continue|answers|replies)\b"
)
_CHOICES: Final = (
    (
        "language of code",
        rf"\b(?:code|examples?|scripts?|functions?|program\w{{0,40}})\b{REST}\bin {words.CODE_LANGUAGE}"
        rf"(?!\w)",
    ),
    ("language", rf"{_SPOKEN_IN}{REST}\b{words.LANGUAGE}\b"),
    ("spelling", r"\b(?:british|american|uk|us|australian|canadian) (?:english|spelling)\b"),
    ("indentation", r"\b(?:tabs|spaces)\b"),
    ("units", r"\b(?:metric|imperial)\b"),
    ("temperatures", r"\b(?:celsius|fahrenheit)\b"),
    ("time format", r"\b(?:24-hour|12-hour|am/pm)\b"),
    ("currency", r"\bin (?:euros|dollars|pounds|yen|francs|rupees)\b"),
    (
        "address",
        r"\b(?:address|treat|speak to|talk to) me (?:in)?formally\b"
        r"|\b(?:in)?formal (?:you|language|tone|du|sie)\b",
    ),
    (
        "length",
        rf"{_LENGTH}{REST}{_ANSWERS}|{_ANSWERS}{REST}{_LENGTH}"
        rf"|{_ANSWERS}{REST}\b(?:under|at most|no more than|within)\b{REST}\b(?:words|sentences|lines|paragraphs?)\b",
    ),
    ("pronouns", r"\bpronouns\b|\b(?:they/them|she/her|he/him)\b"),
)
# Searched from the beginning: a search from each place in turn would read the rest of the text each time.
_COMPILED: Final = tuple((name, starting(rf"{REST}?(?:{pattern})")) for name, pattern in _CHOICES)
# What says how often or how politely, and numbers: `three options` and `five options` are one subject.
_IGNORED_WORDS: Final = """
always never don't do not ever please only just also from now on going forward in the future i you your want wants would
like to should must have need can could a an the any all every each of at more no stop quit longer anymore again that it
be is are am my me user make sure kindly with for one two three four five six seven eight nine ten eleven twelve noon am
pm o'clock avoid without prefer i'd skip use using us uses add adding answer answers reply replies response responses
message messages give giving
"""
_IGNORED: Final = frozenset(_IGNORED_WORDS.split())
_WORD = re.compile(r"[^\W_][\w'+#/-]{0,40}")
_TIME = re.compile(rf"\b{words.AT_A_TIME}", re.IGNORECASE)


def subject_of(text: str) -> str:
    """Return the subject of an instruction: what it is about, without whether, how often or how much."""
    condition = _CONDITION.search(text)
    scope = _key(condition[0]) if condition is not None else ""
    rest = text.replace(condition[0], " ") if condition is not None else text
    for name, pattern in _COMPILED:
        if pattern.search(rest):
            return _subject(name, scope)
    return _subject(_key(rest), scope)


def words_of_instruction(text: str) -> frozenset[str]:
    """Return the words that say what an instruction is about, without their endings."""
    return frozenset(_key(text).split())


def _subject(name: str, scope: str) -> str:
    return f"{_PREFIX}{name}{f' ({scope})' if scope else ''}"[:MAX_CHARACTERS]


def _key(text: str) -> str:
    """Return the words that matter, in their order; a time of day only as such."""
    plain = _TIME.sub(lambda found: f" {found[0].split()[0]} ", text)
    found = (_stem(word) for word in _WORD.findall(plain.lower()) if word not in _IGNORED and not word[0].isdigit())
    return " ".join(dict.fromkeys(found))


def _stem(word: str) -> str:
    """Return a word without the endings of plurals and gerunds: `using emojis` is about `use emoji`."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 2 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word
