"""Where memories come from: who said them, when, in which message of which session, and which call or job made them.

The provenance of a job's memory is that of its message, as far as the viewer may read the message. A memory that a call
stored is the caller's word, whatever message it names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reverie.clock import from_micros
from reverie.memories.types import DREAM_SWEEP, EXTRACTION, IMPORT, Provenance
from storage.memories.trust import trust_class
from storage.repository import AgentRepository
from storage.rows import valid_json
from storage.viewer import is_source, of_message

_JOBS: Final = frozenset({EXTRACTION, DREAM_SWEEP})
_UNKNOWN: Final = "unknown"
# The source of an account's memory is in another database: the memory's metadata name the session.
_METADATA: Final = valid_json("m.metadata")
_ORIGINS: Final = f"""
    SELECT m.id AS id, m.made_by AS made_by, m.source AS source, m.owner_user_id AS owner, m.created_at AS created_at,
        coalesce(s.id, {_METADATA} ->> 'session') AS session,
        s.ref_code AS ref_code, {_METADATA} ->> 'workspace' AS workspace, m.source_message AS message, g.role AS role,
        coalesce(g.name, g.tool_name) AS name, g.user_id AS user
    FROM json_each(:ids) AS j CROSS JOIN memories AS m ON m.agent_id = :agent AND m.id = j.value
    LEFT JOIN sessions AS s ON s.row_id = m.session_row
    LEFT JOIN messages AS g ON g.row_id = (SELECT min(g.row_id) FROM messages AS g
        JOIN sessions AS gs ON gs.row_id = g.session_row
        WHERE {is_source("g", "m")} AND {{readable}})
"""


@dataclass(frozen=True, slots=True)
class _Origin:
    id: str
    made_by: str | None
    source: str
    owner: str | None
    created_at: int
    session: str | None
    ref_code: str | None
    workspace: str | None
    message: str | None
    role: str | None
    name: str | None
    user: str | None


class Provenances(AgentRepository):
    """Where the memories of one agent come from, within one transaction."""

    def of(self, memory_ids: Iterable[str]) -> dict[str, Provenance]:
        """Return the provenance of the given memories by id, as far as they exist."""
        sql = _ORIGINS.format(readable=of_message(self._viewer, "g", "gs"))
        found = self._records(_Origin, sql, ids=list(memory_ids))
        return {origin.id: _provenance(origin) for origin in found}


def _provenance(origin: _Origin) -> Provenance:
    by_job = origin.made_by in _JOBS
    # Extraction reads only messages of users.
    role = (origin.role or ("user" if origin.made_by == EXTRACTION else None)) if by_job else None
    trust = (role or _UNKNOWN) if by_job else origin.source
    if origin.made_by == IMPORT and trust_class(trust) in ("user", "agent"):  # less trusted sources keep their class
        trust = IMPORT
    return Provenance(
        made_by=origin.made_by or _UNKNOWN,
        trust=trust,
        said_at=from_micros(origin.created_at),
        user=origin.owner or (origin.user if by_job else None),
        role=role,
        name=origin.name if by_job else None,
        session=origin.session,
        ref_code=origin.ref_code,
        workspace=origin.workspace,
        message=origin.message,
        message_readable=origin.role is not None,
    )
