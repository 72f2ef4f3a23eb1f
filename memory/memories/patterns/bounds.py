"""Repeats of which the patterns are made, each with a bound: so that any text is searched in linear time.

Sentences with more words than these are not what a person says about themselves or asks of an agent.
"""

from __future__ import annotations

import re
from typing import Final

# Longer sentences are not looked at.
MAX_SENTENCE_CHARACTERS: Final = 400
BLANKS: Final = r"\s{1,3}"
# To the end of a sentence, or a part of it.
REST: Final = rf".{{0,{MAX_SENTENCE_CHARACTERS}}}"


def starting(pattern: str) -> re.Pattern[str]:
    """Return a case-insensitive pattern that matches from the beginning of a text only, however it is searched."""
    return re.compile(rf"\A(?:{pattern})", re.IGNORECASE)
