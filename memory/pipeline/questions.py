"""Questions and answers: a turn that answers is found by the words of its question.

"Yes, last Tuesday!" means nothing by itself; with "When did you move?" in front it does. And what a turn asks of the
other says little of what it tells: a question that an agent asks would find all who asked the same, not the answer.
"""

from __future__ import annotations

import re
from typing import Final

# Enough for what was asked last; a long quotation in a question must not bury the answer.
LEAD_CHARACTERS: Final = 320

# The full-width and the Arabic mark stand as escapes: they look like others.
_MARKS: Final = "?\uff1f\u061f"
# What may stand behind the mark: "Really?!", (really?), a quotation's end, a blank.
_AFTER_MARKS: Final = " \t!)]\"'*_\u2019\u201d\u00bb"
_SENTENCES = re.compile("(?<=[.!?])\\s+|(?<=[\u3002\uff01\uff1f\u061f])\\s*|\n+")


def questions_in(text: str) -> str:
    """The questions of a text, at most the last `LEAD_CHARACTERS` characters of them; empty where it asks nothing."""
    return " ".join(part for part in _sentences(text) if _asks(part))[-LEAD_CHARACTERS:]


def without_questions(text: str) -> str:
    """What a text tells: all of it but its questions; all of it where there is nothing else."""
    told = " ".join(part for part in _sentences(text) if not _asks(part))
    return told or text


def only_asks(text: str) -> bool:
    """Whether a text tells nothing: all that it has are questions."""
    sentences = _sentences(text)
    return bool(sentences) and all(_asks(part) for part in sentences)


def text_to_embed(lead: str, text: str, speaker: str | None = None) -> str:
    """What is embedded for a chunk: the question that it answers, who says it, and what it tells."""
    label = f"{speaker}: " if speaker and text.startswith(f"{speaker}: ") else ""
    told = label + without_questions(text[len(label) :])
    return f"{lead} {told}" if lead else told


def _sentences(text: str) -> list[str]:
    return [part for part in _SENTENCES.split(text) if part and not part.isspace()]


def _asks(sentence: str) -> bool:
    return sentence.rstrip(_AFTER_MARKS).endswith(tuple(_MARKS))
