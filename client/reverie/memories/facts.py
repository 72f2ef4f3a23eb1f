"""The calls for facts: one value for each category and key."""

from __future__ import annotations

from collections.abc import Iterable

from reverie.checks import normalise_tags
from reverie.http import HttpTransport, path_segment
from reverie.memories.checks import check_fact, check_fact_name, draft_of
from reverie.memories.types import Fact, FactDraft, FactList, FactSource
from reverie.types import Deleted


class FactCalls:
    """`set_fact` and its relatives, for a client that has a transport."""

    _http: HttpTransport

    def set_fact(
        self,
        category: str,
        key: str,
        value: str,
        *,
        source: FactSource = "agent",
        importance: float = 0.5,
        confidence: float | None = None,
        tags: Iterable[str] = (),
    ) -> Fact:
        """Say what a fact is: the newest value stands, older ones are kept behind it. Raises `Rejected`."""
        given = {
            "value": value,
            "source": source,
            "importance": importance,
            "confidence": confidence,
            "tags": normalise_tags(tags),
        }
        draft = check_fact(draft_of(FactDraft, given))
        return self._http.call("PUT", _fact_path(category, key), Fact, body=draft)

    def fact(self, category: str, key: str) -> Fact:
        """The fact that stands. Raises `NotFound`."""
        return self._http.call("GET", _fact_path(category, key), Fact)

    def facts(self, category: str | None = None, limit: int = 50, offset: int = 0) -> list[Fact]:
        """Facts that stand, the newest first; of one category, where it is given."""
        query = {"category": category, "limit": limit, "offset": offset}
        return self._http.call("GET", "/v1/facts", FactList, query=query).facts

    def fact_history(self, category: str, key: str) -> list[Fact]:
        """Every value that a fact had, the newest first. Raises `NotFound` where there was never one."""
        return self._http.call("GET", _fact_path(category, key, "/history"), FactList).facts

    def forget_fact(self, category: str, key: str) -> bool:
        """Delete a fact for good with every value that it had; False when there was none."""
        return self._http.call("DELETE", _fact_path(category, key), Deleted).deleted


def _fact_path(category: str, key: str, rest: str = "") -> str:
    category, key = check_fact_name(category, key)
    return f"/v1/facts/{path_segment(category)}/{path_segment(key)}{rest}"
