"""From a message to the statements in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from memory.memories.patterns import facts, preferences, requests
from memory.memories.patterns.matching import first_match
from memory.memories.patterns.sentences import Sentence, sentences_of
from memory.memories.patterns.statement import Statement

# How people begin before they say it.
_LEAD_IN = re.compile(
    r"(?:(?:so|well|also|ok(?:ay)?|hi|hey|hello|oh|and|but|btw|by the way|fyi|actually|anyway|plus|yes|yeah|yep|yup|no"
    r"|nope|nah|sure|right|thanks|thank you|great|cool|nice|awesome|personally|honestly|for me|just so you know"
    r"|in fact|as for me|i mean|you know|good (?:morning|afternoon|evening)|hmm+|um+|wow|definitely|absolutely|totally)"
    r"(?: there)?\s*[,!:\u2013\u2014-]*\s+)+",
    re.IGNORECASE,
)
# Sentences of this kind are somebody else's, or of another world.
_NOT_PLAIN = re.compile(
    r"\b(?:if|unless|whether|wish|would|wouldn't|could have|should have|might|maybe|perhaps|guess|suppose|once|used to"
    r"|when|whenever|back then|dream(?:ed|t)?|said|says|saying|tells?|told|asks?|asked|claims?|claimed|wrote|writes"
    r"|according to|thinks?|thought|believes?|quote|character|narrator|protagonist|not sure|until)\b",
    re.IGNORECASE,
)
# `I live in the shadows, said the ogre`: behind the statement, and yet it makes it somebody else's.
_SAID_BEHIND = re.compile(
    r"\b(?:said|says|whisper(?:ed|s)|shout(?:ed|s)|replie[ds]|crie[ds]|exclaim(?:ed|s)|sang|sings)\s+(?:the|my|a|an|[A-Z])"
    r"|^\s*in (?:a|my|an|another) (?:\w+ )?life\b"
    r"|,\s*(?:he|she|they|it)\s+(?:said|says|whisper|shout|repl|cr(?:ied|ies)|exclaim|sang|sings)",
    re.IGNORECASE,
)
_CLAUSES = re.compile(
    r"(?:\s*[,;:\u2013\u2014]\s*(?:(?:and|but|so|plus|because|since|as)(?: now)?\s+)?|\s+-+\s+"
    r"|\s+(?:and now|but now|and|but|so|because|since|why|how much|reasons?(?: why)?)\s+)"
    r"(?=(?:i|i'm|i've|my|call me)\b)",
    re.IGNORECASE,
)
_RULES: Final = (*facts.RULES, *preferences.RULES)


def find_statements(message: str, *, at: int) -> list[Statement]:
    """What the user says plainly in a message said `at` (microseconds), in order; each content once."""
    found = {made.content: made for sentence in sentences_of(message) for made in _in_sentence(sentence, at)}
    return list(found.values())


def _in_sentence(sentence: Sentence, at: int) -> Iterator[Statement]:
    begun = _after_lead_in(sentence)
    asked = requests.match(begun, at)
    if asked is not None:
        yield _more_exactly(asked, begun) or asked
        return
    for start in _clause_starts(begun.text):
        made = first_match(Sentence(begun.text[start:], begun.own[start:]), _RULES)
        if made is None:
            continue
        end = start + len(made.quote)
        if not (_NOT_PLAIN.search(begun.text, 0, end) or _SAID_BEHIND.search(begun.text[end:])):
            yield made


def _more_exactly(asked: Statement, begun: Sentence) -> Statement | None:
    """What is to be remembered as the statement that it is, so that a newer one can take its place."""
    rest = requests.to_remember(begun)
    if rest is None:
        return None
    made = first_match(rest, _RULES)
    if made is None or made.quote != rest.own.rstrip(" .!") or _NOT_PLAIN.search(rest.text):
        return None
    return replace(made, quote=asked.quote, importance=max(made.importance, asked.importance), lifetime="long_term")


def _after_lead_in(sentence: Sentence) -> Sentence:
    found = _LEAD_IN.match(sentence.text)
    start = found.end() if found else 0
    return Sentence(sentence.text[start:], sentence.own[start:])


def _clause_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in _CLAUSES.finditer(text))]
