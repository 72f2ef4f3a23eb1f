"""The contexts that were served: ids of what each one told and left out, never a text of it.

One goes with its session, its user, and an erasure of what it names. It is written by a worker, as recall events are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reverie.recall.types import ServedItem
from storage.repository import AgentRepository, Repository
from storage.viewer import of_session

# A session that began after the context is another one: the earlier one was forgotten.
_RECORD: Final = """
    INSERT INTO contexts (id, agent_id, session_row, user_id, at, query, token_budget, tokens, degraded, items)
    SELECT :id, :agent, s.row_id, :user, :at, :query, :token_budget, :tokens, :degraded, :items FROM sessions AS s
    WHERE s.agent_id = :agent AND s.id = :session AND s.started_at <= :at
    ON CONFLICT (id) DO NOTHING
"""
_SELECT: Final = """
    SELECT c.id AS id, c.agent_id AS agent, s.id AS session, c.user_id AS user, c.at AS at, c.query AS query,
        c.token_budget AS token_budget, c.tokens AS tokens, c.degraded AS degraded, c.items AS items
    FROM contexts AS c JOIN sessions AS s ON s.row_id = c.session_row WHERE c.agent_id = :agent
"""
_PRUNE: Final = "DELETE FROM contexts WHERE id IN (SELECT id FROM contexts WHERE at < :before ORDER BY id LIMIT :limit)"


@dataclass(frozen=True, slots=True)
class NewContext:
    """One context to record; `at` in microseconds."""

    id: str
    agent: str
    session: str
    user: str | None
    at: int
    query: str
    token_budget: int
    tokens: int
    degraded: str
    items: Sequence[ServedItem]


class AllContexts(Repository):
    """The contexts of a workspace within one transaction. It crosses agents: for workers only."""

    def record(self, contexts: Sequence[NewContext]) -> int:
        """Store contexts; returns how many are new. One whose session is gone is left out."""
        return sum(self._execute(_RECORD, **_values(context)).rowcount for context in contexts)

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` contexts older than a time in microseconds; returns how many."""
        return self._execute(_PRUNE, before=before, limit=limit).rowcount


class Contexts(AgentRepository):
    """The contexts of one agent within one transaction: those of the viewer, in sessions that the viewer may see."""

    def page(self, *, session: str | None, limit: int, offset: int) -> list[NewContext]:
        """Return contexts, newest first."""
        of_one = "" if session is None else " AND s.id = :session"
        sql = f"{_SELECT}{self._of_viewer}{of_one} ORDER BY c.at DESC, c.id DESC LIMIT :limit OFFSET :offset"
        return [_loaded(row) for row in self._execute(sql, session=session, limit=limit, offset=offset).mappings()]

    def find(self, id: str) -> NewContext | None:
        """Return the context with this id."""
        row = self._execute(f"{_SELECT}{self._of_viewer} AND c.id = :id", id=id).mappings().one_or_none()
        return None if row is None else _loaded(row)

    @property
    def _of_viewer(self) -> str:
        if self._viewer is None:
            return ""
        return f" AND c.user_id IS :viewer AND {of_session(self._viewer, 's')}"


def _values(context: NewContext) -> dict[str, Any]:
    values = {name: getattr(context, name) for name in NewContext.__dataclass_fields__}
    return {**values, "items": msgspec.json.encode(context.items).decode()}


def _loaded(row: Any) -> NewContext:
    return NewContext(**{**row, "items": msgspec.json.decode(row["items"], type=list[ServedItem])})
