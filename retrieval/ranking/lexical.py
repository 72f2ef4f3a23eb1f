"""Turn a query in plain words into an FTS5 match expression; operators in the query have no effect."""

from __future__ import annotations

import re
from typing import Final

# Long queries repeat words; beyond this many, reading the posting lists is slow.
MAX_WORDS: Final = 64

_WORD = re.compile(r"\w+", re.UNICODE)


def match_expression(query: str) -> str:
    """Return each distinct word, quoted and joined by OR; empty if the query has no word.

    Phrases would find nothing, and AND fails on sentences. Words contain neither NUL nor quotes: nothing to escape.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(query))
    return " OR ".join(f'"{word}"' for word in list(words)[:MAX_WORDS])
