"""Recognises questions about a whole history: in which order something happened, or a summary of it.

No single text answers them. The best results only name the subject: small talk, and long answers of an assistant that
repeat it. The events themselves are in many messages of people, which hardly name the subject.
"""

from __future__ import annotations

import re
from typing import Final

from reverie.recall.types import RecallResult

# A longer query is a turn of a conversation, in which such words say little.
_MAX_CHARACTERS: Final = 240
_WHOLE: Final = re.compile(
    r"\Aorder the\b|\b(?:summar(?:y|ies|i[sz]e[ds]?|i[sz]ing)|sum up|recap|overview|condense|overall"
    r"|(?:my|our) progress|progressed|evolve[ds]?|history of|story of|over time|so far|across (?:all|our)"
    r"|over (?:all )?these (?:weeks|months|years)|until (?:now|today)|up to date|throughout|unfold(?:ed)?"
    r"|step by step|timeline|chronolog(?:y|ical|ically)|sequence|oldest first|one after the other"
    r"|(?:in|into|what|which|the) order\b(?! to)|from (?:start|first|the (?:start|beginning|first)))\b"
    r"|\bfirst\b.{1,80}\b(?:second|next|then)\b",
    re.IGNORECASE | re.DOTALL,
)
# Questions for the assistant's words: "What did you recommend".
_OF_ASSISTANT: Final = re.compile(
    r"\b(?:your|you(?:'ve| have| had)?)"
    r" (?:advi[cs]e|answer|explain|explanation|gave|given|propos|recommend|said|suggest|told)",
    re.IGNORECASE,
)


def asks_for_history(query: str) -> bool:
    """Return whether a question is about a whole history as people told it."""
    if len(query) > _MAX_CHARACTERS or _OF_ASSISTANT.search(query):
        return False
    return _WHOLE.search(query) is not None


def is_of_person(result: RecallResult) -> bool:
    """Return whether a result is a person's word: a memory, or a message of a user or of somebody with a name."""
    return result.kind == "memory" or (result.kind == "message" and (result.role == "user" or bool(result.name)))
