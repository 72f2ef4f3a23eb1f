"""Match a clause with a pattern: its value, as the patterns see it and as it was written, and its quote."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from memory.memories.patterns.bounds import BLANKS, REST, starting
from memory.memories.patterns.sentences import Sentence
from memory.memories.patterns.statement import Statement
from memory.memories.patterns.values import cut

_ADVERBS: Final = (
    r"really|also|just|currently|now|actually|absolutely|do|still|truly|both|always|generally|usually|personally"
    r"|already|mostly|definitely|particularly|especially|simply"
)
ADVERB: Final = rf"(?:(?:{_ADVERBS}){BLANKS}){{0,2}}"
I_AM: Final = r"i(?:'m| am)\s{1,3}"
IS: Final = r"(?:'s| is)(?: now)?\s{1,3}"
VALUE: Final = rf"(?P<value>\S{REST})"
# After a value that was matched whole: the clause ends, or continues with something else.
END: Final = r"(?=\s{0,3}(?:$|[,;.!()]|\b(?:and|but|so|at|in|with|who|from|by|working|living|because)\b))"


@dataclass(frozen=True)
class PatternMatch:
    """A pattern that matched a clause from its first word on."""

    clause: Sentence
    regex_match: re.Match[str]

    @cached_property
    def covered_value(self) -> str:
        """Return the value without what follows it, with quotations covered: checks use this form."""
        return cut(self.regex_match["value"])

    @cached_property
    def value(self) -> str:
        """Return the same value as it was written."""
        start = self.regex_match.start("value") + self.regex_match["value"].find(self.covered_value)
        return self.clause.words(start, start + len(self.covered_value))

    @property
    def whole(self) -> str:
        """Return everything that the pattern matched as the value, as it was written."""
        return self.clause.words(*self.regex_match.span("value"))

    @property
    def key(self) -> str:
        """Return what the value belongs to, in lower case with single blanks."""
        return " ".join(self.regex_match["key"].lower().split())

    @property
    def written_key(self) -> str:
        """Return what the value belongs to, as it was written."""
        return " ".join(self.regex_match["key"].split())

    def quote(self, value: str | None = None) -> str:
        """Return the user's words up to the end of the value."""
        return self.clause.words(0, self.regex_match.start("value")) + (self.value if value is None else value)


Maker = Callable[[PatternMatch], Statement | None]
Rule = tuple[re.Pattern[str], Maker]


def rule(pattern: str, make: Maker) -> Rule:
    """Return a rule: a case-insensitive pattern, and the function that makes a statement of its match."""
    return starting(pattern), make


def first_match(clause: Sentence, rules: Sequence[Rule]) -> Statement | None:
    """Return the statement that the first matching rule makes of a clause, if any."""
    for pattern, make in rules:
        found = pattern.match(clause.text)
        if found is not None:
            return make(PatternMatch(clause, found))
    return None
