"""Scores from its recall events how worth keeping a memory is. Pure: events in, numbers out.

The score is the weighted sum of five signals on [0, 1]. It is high for memories that were recalled often, with high
relevance, recently, by different queries and on different days; the gates reject memories that were requested
repeatedly within a minute. Memories that several users see have further gates: one user alone must not make them last.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final, Literal

from memory.upkeep.relevance import MIN_DAYS, MIN_USERS
from reverie.clock import DAY_MICROS, rfc3339
from reverie.counts import counted
from storage.recall.words import with_few_marks
from storage.upkeep.dreams import DreamEvent

# Half-life of the recency of a recall: preferences and procedures change slowly.
HALF_LIFE_DAYS: Final = {"preference": 365.0, "procedure": 365.0, "instruction": 365.0}
OTHER_HALF_LIFE_DAYS: Final = 90.0
# The gates for memories that several users see.
SharedGate = Literal["too_few_users", "too_few_days"]
WEIGHTS: Final = {"frequency": 0.24, "relevance": 0.30, "recency": 0.15, "diversity": 0.15, "spread": 0.16}
# A signal is full at six hits, five queries, five days.
_FULL_FREQUENCY: Final = math.log(7)
_FULL_DIVERSITY: Final = 5
_FULL_SPREAD: Final = 5

_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamRules:
    """Which recalls a dream sweep counts, and the minimum numbers for a promotion.

    `shared_min_users` and `shared_min_days` apply to memories that several users see, if the agent has users: only
    recalls of named users who are not the author count.
    """

    lookback_days: float = 30.0
    min_hits: int = 3
    min_queries: int = 2
    min_score: float = 0.35
    most_promotions: int = 20
    shared_min_users: int = MIN_USERS
    shared_min_days: int = MIN_DAYS

    def since(self, now: int) -> int:
        """Return the start of the period that a sweep counts, in microseconds."""
        return now - int(self.lookback_days * DAY_MICROS)


DREAM_RULES: Final = DreamRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The five signals of one memory, each on [0, 1], and the counts behind them. `last_at` is in microseconds.

    `users` and `user_days` count the users other than the author who recalled it, and their days, up to the numbers
    that the rules ask for.
    """

    frequency: float
    relevance: float
    recency: float
    diversity: float
    spread: float
    hits: int
    queries: int
    last_at: int
    users: int = 0
    user_days: int = 0

    @property
    def score(self) -> float:
        """`.24 frequency + .30 relevance + .15 recency + .15 diversity + .16 spread`."""
        return sum(weight * float(getattr(self, name)) for name, weight in WEIGHTS.items())

    @property
    def explanation(self) -> str:
        """The reason of a promotion, as the curation log shows it."""
        signals = ", ".join(f"{name} {float(getattr(self, name)):.2f}" for name in WEIGHTS)
        last = rfc3339(self.last_at)[:10]
        recalled = f"recalled {counted(self.hits, 'time')} by {counted(self.queries, 'query')}"
        return f"score {self.score:.3f}: {recalled}, last on {last} ({signals})"

    def missed_gate(self, rules: DreamRules) -> str:
        """Return the minimum that was not reached, with its value; empty if all were reached."""
        if self.hits < rules.min_hits:
            return f"recalled {counted(self.hits, 'time')}, needs {rules.min_hits}"
        if self.queries < rules.min_queries:
            queries = f"{self.queries} different {'query' if self.queries == 1 else 'queries'}"
            return f"recalled by {queries}, needs {rules.min_queries}"
        if self.score < rules.min_score:
            return f"score {self.score:.3f}, needs {rules.min_score:g}"
        return ""

    def missed_shared_gate(self, rules: DreamRules) -> tuple[SharedGate, str] | None:
        """Return a minimum for shared memories that was not reached, and what was counted for it; else None."""
        if self.users < rules.shared_min_users:
            users = counted(self.users, "named user")
            needed = f"recalled by {users} besides its author, needs {rules.shared_min_users}"
            return "too_few_users", f"several users see it: {needed}"
        if self.user_days < rules.shared_min_days:
            days = counted(self.user_days, "day")
            needed = f"recalled by such users on {days}, needs {rules.shared_min_days}"
            return "too_few_days", f"several users see it: {needed}"
        return None


@dataclass(slots=True)
class Tally:
    """Counts the recall events of one memory as they are read, in constant memory.

    The events of one recall must be added one after the other: a recall counts once, by its best result. At most
    `max_queries` different queries are counted, and at most `max_users` users other than the `author`, with as many
    days as `max_user_days`.
    """

    max_queries: int = _FULL_DIVERSITY
    author: str | None = None
    max_users: int = MIN_USERS
    max_user_days: int = MIN_DAYS
    hits: int = 0
    last_at: int = 0
    _scores: float = 0.0
    _recall: str = ""
    _best: float = 0.0
    _queries: set[str] = field(default_factory=set)
    _days: set[int] = field(default_factory=set)
    _users: set[str] = field(default_factory=set)
    _user_days: set[int] = field(default_factory=set)

    def add(self, event: DreamEvent) -> None:
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
        if len(self._queries) < self.max_queries:
            self._queries.add(normalised_query(event.query))
        if len(self._days) < _FULL_SPREAD:
            self._days.add(event.at // DAY_MICROS)
        if event.user is not None and event.user != self.author:
            if len(self._users) < self.max_users:
                self._users.add(event.user)
            if len(self._user_days) < self.max_user_days:
                self._user_days.add(event.at // DAY_MICROS)

    def signals(self, *, now: int, kind: str) -> Signals:
        """Return the signals of the counted events. `now` is in microseconds."""
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
            users=len(self._users),
            user_days=len(self._user_days),
        )


def normalised_query(query: str) -> str:
    """Return the words of a query without case, punctuation and white space: equal ones count as one query."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", with_few_marks(query)).casefold())
    return " ".join(_WORDS.findall(folded))
