"""Questions and answers: an answer is embedded together with the question before it, and without its own questions.

"Yes, last Tuesday!" means little by itself, but much with "When did you move?" in front. The questions in a text are
left out: otherwise a query would find earlier occurrences of the same question instead of the answer.
"""

from __future__ import annotations

import re
from typing import Final

# Enough for the last question; a long quotation in a question must not outweigh the answer.
LEAD_CHARACTERS: Final = 320

# The full-width and the Arabic mark are written as escapes because they look like other characters.
_MARKS: Final = "?\uff1f\u061f"
# Characters that may follow the mark: "Really?!", (really?), the end of a quotation, a blank.
_AFTER_MARKS: Final = " \t!)]\"'*_\u2019\u201d\u00bb"
_SENTENCES = re.compile("(?<=[.!?])\\s+|(?<=[\u3002\uff01\uff1f\u061f])\\s*|\n+")


def questions_in(text: str) -> str:
    """Return the questions of a text, cut to the last `LEAD_CHARACTERS` characters; empty if there are none."""
    return " ".join(part for part in _sentences(text) if is_question(part))[-LEAD_CHARACTERS:]


def without_questions(text: str) -> str:
    """Return a text without its questions, or the whole text if it has nothing else."""
    statements = " ".join(part for part in _sentences(text) if not is_question(part))
    return statements or text


def is_only_questions(text: str) -> bool:
    """Return whether a text consists of questions only."""
    sentences = _sentences(text)
    return bool(sentences) and all(is_question(part) for part in sentences)


def text_to_embed(lead: str, text: str, speaker: str | None = None) -> str:
    """Return the text to embed for a chunk: the question before it, the speaker, and the text without its questions."""
    label = f"{speaker}: " if speaker and text.startswith(f"{speaker}: ") else ""
    answer = label + without_questions(text[len(label) :])
    return f"{lead} {answer}" if lead else answer


def _sentences(text: str) -> list[str]:
    return [part for part in _SENTENCES.split(text) if part and not part.isspace()]


def is_question(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark."""
    return sentence.rstrip(_AFTER_MARKS).endswith(tuple(_MARKS))
