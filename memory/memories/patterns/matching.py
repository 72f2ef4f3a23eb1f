"""A clause that a pattern fits: its value, as the patterns see it and as it was written, and its quotation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from memory.memories.patterns.sentences import Sentence
from memory.memories.patterns.statement import Statement
from memory.memories.patterns.values import cut

_ADVERBS: Final = (
    r"really|also|just|currently|now|actually|absolutely|do|still|truly|both|always|generally|usually|personally"
    r"|already|mostly|definitely|particularly|especially|simply"
)
ADVERB: Final = rf"(?:(?:{_ADVERBS})\s+){{0,2}}"
I_AM: Final = r"i(?:'m| am)\s+"
IS: Final = r"(?:'s| is)(?: now)?\s+"
VALUE: Final = r"(?P<value>\S.*)"
# Behind a value that was matched whole: the clause ends, or goes on about something else.
END: Final = r"(?=\s*(?:$|[,;.!()]|\b(?:and|but|so|at|in|with|who|from|by|working|living|because)\b))"


@dataclass(frozen=True)
class Hit:
    """A pattern that fits a clause from its first word on."""

    clause: Sentence
    found: re.Match[str]

    @cached_property
    def seen(self) -> str:
        """The value without what follows it, quotations covered: what checks look at."""
        return cut(self.found["value"])

    @cached_property
    def value(self) -> str:
        """The same, as it was written."""
        start = self.found.start("value") + self.found["value"].find(self.seen)
        return self.clause.words(start, start + len(self.seen))

    @property
    def whole(self) -> str:
        """All that the pattern took for the value, as it was written."""
        return self.clause.words(*self.found.span("value"))

    @property
    def key(self) -> str:
        """What the value is of, in small letters, blanks as one."""
        return " ".join(self.found["key"].lower().split())

    @property
    def written_key(self) -> str:
        """What the value is of, as it was written."""
        return " ".join(self.found["key"].split())

    def quote(self, value: str | None = None) -> str:
        """The user's words up to the end of the value."""
        return self.clause.words(0, self.found.start("value")) + (self.value if value is None else value)


Maker = Callable[[Hit], Statement | None]
Rule = tuple[re.Pattern[str], Maker]


def rule(pattern: str, make: Maker) -> Rule:
    """A pattern, in any case, and what becomes of what it fits."""
    return re.compile(pattern, re.IGNORECASE), make


def first_match(clause: Sentence, rules: Sequence[Rule]) -> Statement | None:
    """What the first rule that fits makes of a clause, which may be nothing."""
    for pattern, make in rules:
        found = pattern.match(clause.text)
        if found is not None:
            return make(Hit(clause, found))
    return None
