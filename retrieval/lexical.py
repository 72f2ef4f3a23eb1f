"""Turn a query in plain words into an FTS5 match expression; operators in the query have no effect."""

from __future__ import annotations

import re
from typing import Final

# Long questions say the same words again; past this many the slow part is reading the posting lists.
MAX_WORDS: Final = 64

_WORD = re.compile(r"\w+", re.UNICODE)


def match_expression(query: str) -> str:
    """Each different word quoted and joined by OR: whole phrases find nothing, AND fails on sentences.

    Empty when the query holds no word. A NUL or a quote cannot be part of a word, so nothing needs escaping.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(query))
    return " OR ".join(f'"{word}"' for word in list(words)[:MAX_WORDS])
