"""A recall request: checked once, so that the rest of retrieval can rely on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from retrieval.fusion import Fusion, RetrieverName
from reverie.errors import Rejected

Mode = Literal["keyword", "vector", "hybrid"]
Scope = Literal["conversation", "channel", "workspace", "account"]
Kind = Literal["message", "file", "memory"]

MODES: Final = ("keyword", "vector", "hybrid")
FUSIONS: Final = ("contextual", "weighted", "rrf")
SCOPES: Final = ("conversation", "channel", "workspace", "account")
KINDS: Final = ("message", "file", "memory")
MAX_LIMIT: Final = 100
MAX_NEIGHBOURS: Final = 10
MAX_QUERY_CHARACTERS: Final = 100_000
# Default weight of the vector retriever; the keyword retriever gets the rest.
_VECTOR_WEIGHTS: Final[Mapping[Fusion, float]] = {"contextual": 0.5, "weighted": 0.7, "rrf": 0.5}
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What to search for, where, and how. Validated by `check`.

    `scope` is how far to search from `session`; without a scope a session limits the recall to itself. `kinds` limits
    it to some of message, file and memory. `neighbours` is the number of messages to return before and after each
    result.

    A memory and its source message are one result, the message, unless `separate_memories` is set. The memories of
    `visible_channel` are visible from the session instead of those of the session's own channel.
    """

    query: str
    agent: str
    session: str | None = None
    channel: str | None = None
    scope: Scope | None = None
    tags: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    mode: Mode = "hybrid"
    limit: int = 5
    query_embedding: Sequence[float] | None = None
    fusion: Fusion = "contextual"
    vector_weight: float | None = None
    fts_weight: float | None = None
    neighbours: int = 0
    explain: bool = False
    separate_memories: bool = False
    visible_channel: str | None = None

    def check(self) -> None:
        """Raise `Rejected`, naming the field, if the request is invalid."""
        if len(self.query) > MAX_QUERY_CHARACTERS:
            raise Rejected(
                f"query has {len(self.query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", field="query"
            )
        _check_choice("mode", self.mode, MODES)
        _check_choice("fusion", self.fusion, FUSIONS)
        if not 1 <= self.limit <= MAX_LIMIT:
            raise Rejected(f"limit is {self.limit}; it must lie in 1 to {MAX_LIMIT}", field="limit")
        if not 0 <= self.neighbours <= MAX_NEIGHBOURS:
            raise Rejected(f"neighbours is {self.neighbours}; it must lie in 0 to {MAX_NEIGHBOURS}", field="neighbours")
        for kind in self.kinds:
            _check_choice("kinds", kind, KINDS)
        self._check_scope()
        self._check_weights()

    def finds(self, kind: Kind) -> bool:
        """Return whether results of this kind are requested."""
        return not self.kinds or kind in self.kinds

    @property
    def spans_workspaces(self) -> bool:
        """Whether it also searches the memories of the account tier: nothing limits it, or its scope is `account`."""
        everywhere = self.scope == "account" or (self.scope is None and self.session is None)
        return everywhere and self.channel is None and self.finds("memory")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to search for: neither text nor a vector."""
        return not self.query.strip() and self.query_embedding is None

    @property
    def weights(self) -> tuple[float, float]:
        """The weights of the vector and the keyword retriever. They sum to 1, so one determines the other."""
        if self.vector_weight is not None:
            return self.vector_weight, 1.0 - self.vector_weight
        if self.fts_weight is not None:
            return 1.0 - self.fts_weight, self.fts_weight
        return _VECTOR_WEIGHTS[self.fusion], 1.0 - _VECTOR_WEIGHTS[self.fusion]

    def retriever_weights(self, base_weights: Mapping[RetrieverName, float]) -> dict[RetrieverName, float]:
        """Return the weights of the contextual ranking, scaled by the request's weights."""
        vector, keyword = self.weights
        shift = {"vector": 2 * vector, "keyword": 2 * keyword}
        return {name: weight * shift.get(name.split("_")[0], 1.0) for name, weight in base_weights.items()}

    def _check_scope(self) -> None:
        if self.scope is None:
            return
        _check_choice("scope", self.scope, SCOPES)
        if self.scope == "conversation" and self.session is None:
            raise Rejected("scope conversation needs a session", field="scope")
        if self.scope == "channel" and self.session is None and self.channel is None:
            raise Rejected("scope channel needs a channel, or a session that lies in it", field="scope")

    def _check_weights(self) -> None:
        for name in ("vector_weight", "fts_weight"):
            weight = getattr(self, name)
            if weight is not None and not (math.isfinite(weight) and 0.0 <= weight <= 1.0):
                raise Rejected(f"{name} is {weight}; it must lie in [0, 1]", field=name)
        if self.vector_weight is not None and self.fts_weight is not None:
            total = self.vector_weight + self.fts_weight
            if abs(total - 1.0) > _ROUNDING:
                raise Rejected(
                    f"vector_weight and fts_weight sum to {total:g}; they must sum to 1, or give one of them alone",
                    field="vector_weight",
                )


def _check_choice(field: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise Rejected(f"{field} {str(value)[:80]!r} is none of {', '.join(choices)}", field=field)
