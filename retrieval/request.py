"""A recall request: the client's call, and what only the server knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from retrieval.ranking.fusion import Fusion, RetrieverName
from reverie.calls import converted
from reverie.recall.calls import Kind, Recall

# Default weight of the vector retriever; the keyword retriever gets the rest.
_VECTOR_WEIGHTS: Final[Mapping[Fusion, float]] = {"contextual": 0.5, "weighted": 0.7, "rrf": 0.5}


class _OfAgent(Recall, frozen=True):
    agent: str


class RecallRequest(_OfAgent, kw_only=True, frozen=True):
    """A call of `recall` on behalf of an agent.

    A memory and its source message are one result, the message, unless `separate_memories` is set, and what says the
    same is one result, the best of it, unless `separate_duplicates` is set. The memories of `visible_channel` are
    visible from the session instead of those of the session's own channel.
    """

    separate_memories: bool = False
    separate_duplicates: bool = False
    visible_channel: str | None = None

    def check(self) -> None:
        """Raise `Rejected`, naming the field, if the request is invalid. Its query may be any text."""
        converted(self).checked()

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
