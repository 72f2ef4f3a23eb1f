"""Find the statements in a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from memory.memories.patterns import facts, preferences, requests
from memory.memories.patterns.bounds import starting
from memory.memories.patterns.instructions import find_instructions
from memory.memories.patterns.matching import first_match
from memory.memories.patterns.sentences import Sentence, sentences_of
from memory.memories.patterns.statement import Statement

# Words with which people lead into a statement.
_LEAD_IN = starting(
    r"(?:(?:so|well|also|ok(?:ay)?|hi|hey|hello|oh|and|but|btw|by the way|fyi|actually|anyway|plus|yes|yeah|yep|yup|no"
    r"|nope|nah|sure|right|thanks|thank you|great|cool|nice|awesome|personally|honestly|for me|just so you know"
    r"|in fact|as for me|i mean|you know|good (?:morning|afternoon|evening)|hmm{1,10}"
    r"|um{1,10}|wow|definitely|absolutely|totally)"
    r"(?: there)?(?:\s{0,3}[,!:\u2013\u2014-]{1,40})?\s{1,3}){1,5}",
)
# Sentences with these words are somebody else's, or about something that is not real.
_NOT_PLAIN = re.compile(
    r"\b(?:if|unless|whether|wish|would|wouldn't|could have|should have|might|maybe|perhaps|guess|suppose|once|used to"
    r"|when|whenever|back then|dream(?:ed|t)?|said|says|saying|tells?|told|asks?|asked|claims?|claimed|wrote|writes"
    r"|according to|thinks?|thought|believes?|quote|character|narrator|protagonist|not sure|until)\b",
    re.IGNORECASE,
)
# `I live in the shadows, said the ogre`: words after a statement that make it somebody else's.
_SPEECH_TAG_AFTER = re.compile(
    r"\b(?:said|says|whisper(?:ed|s)|shout(?:ed|s)|replie[ds]|crie[ds]|exclaim(?:ed"
    r"|s)|sang|sings)\s{1,3}(?:the|my|a|an|[A-Z])"
    r"|^\s{0,3}in (?:a|my|an|another) (?:\w{1,40} )?life\b"
    r"|,\s{0,3}(?:he|she|they|it)\s{1,3}(?:said|says|whisper|shout|repl|cr(?:ied|ies)|exclaim|sang|sings)",
    re.IGNORECASE,
)
_CLAUSES = re.compile(
    r"(?:\s{0,3}[,;:\u2013\u2014]\s{0,3}(?:(?:and|but|so|plus|because|since|as)(?: now)?\s{1,3})?|\s{1,3}-{1,10}\s{1,3}"
    r"|\s{1,3}(?:and now|but now|and|but|so|because|since|why|how much|reasons?(?: why)?)\s{1,3})"
    r"(?=(?:i|i'm|i've|my|call me)\b)",
    re.IGNORECASE,
)
_RULES: Final = (*facts.RULES, *preferences.RULES)


def find_statements(message: str, *, at: int) -> list[Statement]:
    """Return what the user says plainly in a message sent `at` (microseconds), in order; each content once."""
    instructions = find_instructions(message)
    others = (statement for sentence in sentences_of(message) for statement in _in_sentence(sentence, at))
    # An instruction is found once: `I prefer short answers` is not a taste as well.
    apart = (other for other in others if not any(other.quote in one.quote for one in instructions))
    found = {statement.content: statement for statement in [*instructions, *apart]}
    return sorted(found.values(), key=lambda statement: message.find(statement.quote))


def _in_sentence(sentence: Sentence, at: int) -> Iterator[Statement]:
    body = _after_lead_in(sentence)
    request = requests.match(body, at)
    if request is not None:
        yield _as_statement(request, body) or request
        return
    for start in _clause_starts(body.text):
        statement = first_match(Sentence(body.text[start:], body.original[start:]), _RULES)
        if statement is None:
            continue
        end = start + len(statement.quote)
        if not (_NOT_PLAIN.search(body.text, 0, end) or _SPEECH_TAG_AFTER.search(body.text[end:])):
            yield statement


def _as_statement(request: Statement, body: Sentence) -> Statement | None:
    """Return what is to be remembered as a statement of its own kind, so that a newer one can supersede it."""
    rest = requests.to_remember(body)
    if rest is None:
        return None
    statement = first_match(rest, _RULES)
    if statement is None or statement.quote != rest.original.rstrip(" .!") or _NOT_PLAIN.search(rest.text):
        return None
    return replace(
        statement, quote=request.quote, importance=max(statement.importance, request.importance), lifetime="long_term"
    )


def _after_lead_in(sentence: Sentence) -> Sentence:
    found = _LEAD_IN.match(sentence.text)
    start = found.end() if found else 0
    return Sentence(sentence.text[start:], sentence.original[start:])


def _clause_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in _CLAUSES.finditer(text))]
