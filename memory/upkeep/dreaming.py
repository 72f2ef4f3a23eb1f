"""What a dream sweep thinks of: how worth keeping something is, from how it was recalled. Pure: events in, numbers out.

Five signals, each on [0, 1], and their weighted sum. What was recalled often, well, lately, for different reasons and
on different days scores high; the gates keep out what one person asked for again and again within a minute.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final, Protocol

from reverie.clock import rfc3339
from storage.recall.words import with_few_marks

DAY_MICROS: Final = 24 * 3_600 * 1_000_000
# How soon it is forgotten that something was recalled: ways of doing and liking change slowly.
HALF_LIFE_DAYS: Final = {"preference": 365.0, "procedure": 365.0}
OTHER_HALF_LIFE_DAYS: Final = 90.0
WEIGHTS: Final = {"frequency": 0.24, "relevance": 0.30, "recency": 0.15, "diversity": 0.15, "spread": 0.16}
# Six hits are as good as more, five queries and five days too.
_FULL_FREQUENCY: Final = math.log(7)
_FULL_DIVERSITY: Final = 5
_FULL_SPREAD: Final = 5

_WORDS = re.compile(r"[^\W_]+")


class Recalled(Protocol):
    """One result of one recall: what was asked, how well it fitted, and when (microseconds)."""

    @property
    def recall(self) -> str:
        """The recall that it belongs to."""

    @property
    def query(self) -> str:
        """What was asked."""

    @property
    def score(self) -> float:
        """How well it fitted, on [0, 1]."""

    @property
    def at(self) -> int:
        """When."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamRules:
    """What a dream sweep looks at, and what it takes to be promoted."""

    lookback_days: float = 30.0
    min_hits: int = 3
    min_queries: int = 2
    min_score: float = 0.35
    most_promotions: int = 20

    def since(self, now: int) -> int:
        """The first moment that a sweep looks at, in microseconds."""
        return now - int(self.lookback_days * DAY_MICROS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The five signals of one memory, each on [0, 1], and the counts behind them. `last_at` is in microseconds."""

    frequency: float
    relevance: float
    recency: float
    diversity: float
    spread: float
    hits: int
    queries: int
    last_at: int

    @property
    def score(self) -> float:
        """`.24 frequency + .30 relevance + .15 recency + .15 diversity + .16 spread`."""
        return sum(weight * float(getattr(self, name)) for name, weight in WEIGHTS.items())

    @property
    def told(self) -> str:
        """What they say, for whoever wonders why something was promoted."""
        named = ", ".join(f"{name} {float(getattr(self, name)):.2f}" for name in WEIGHTS)
        last = rfc3339(self.last_at)[:10]
        return f"score {self.score:.3f}: recalled {self.hits} times by {self.queries} queries, last on {last} ({named})"

    def pass_gates(self, rules: DreamRules) -> bool:
        """Whether it may be promoted: often enough, by queries different enough, and scored high enough."""
        return self.hits >= rules.min_hits and self.queries >= rules.min_queries and self.score >= rules.min_score


@dataclass(slots=True)
class Tally:
    """The events of one memory, counted as they are read: a handful of numbers however many there are.

    Give it the events of one recall one after the other: a recall counts once, by its best result. Of queries and days
    no more are remembered than can matter.
    """

    remembered: int = _FULL_DIVERSITY
    hits: int = 0
    last_at: int = 0
    _scores: float = 0.0
    _recall: str = ""
    _best: float = 0.0
    _queries: set[str] = field(default_factory=set)
    _days: set[int] = field(default_factory=set)

    def add(self, event: Recalled) -> None:
        """Count an event."""
        score = min(1.0, max(0.0, event.score))
        if event.recall == self._recall:
            self._scores += max(0.0, score - self._best)
            self._best = max(self._best, score)
            return
        self._recall, self._best = event.recall, score
        self.hits += 1
        self._scores += score
        self.last_at = max(self.last_at, event.at)
        if len(self._queries) < self.remembered:
            self._queries.add(normalised_query(event.query))
        if len(self._days) < _FULL_SPREAD:
            self._days.add(event.at // DAY_MICROS)

    def signals(self, *, now: int, kind: str) -> Signals:
        """The signals of what was counted. `now` is in microseconds."""
        days_since = max(0.0, (now - self.last_at) / DAY_MICROS)
        half_life = HALF_LIFE_DAYS.get(kind, OTHER_HALF_LIFE_DAYS)
        return Signals(
            frequency=min(1.0, math.log1p(self.hits) / _FULL_FREQUENCY),
            relevance=self._scores / self.hits if self.hits else 0.0,
            recency=2.0 ** (-days_since / half_life) if self.hits else 0.0,
            diversity=min(1.0, len(self._queries) / _FULL_DIVERSITY),
            spread=min(1.0, len(self._days) / _FULL_SPREAD),
            hits=self.hits,
            queries=len(self._queries),
            last_at=self.last_at,
        )


def normalised_query(query: str) -> str:
    """What two queries must share to count as one: their words, whatever the case, the punctuation and the blanks."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", with_few_marks(query)).casefold())
    return " ".join(_WORDS.findall(folded))
