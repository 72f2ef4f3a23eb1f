"""Standing instructions: how each user has told an agent to act from now on, and which of these are still in force.

Current memories of the kind `instruction` are in force, and preferences as important as a flagged message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reverie.memories.types import Tier
from storage.memories.records import CONFIRMED
from storage.memories.trust import HAS_RIGHT
from storage.repository import AgentRepository
from storage.rows import select_list
from storage.viewer import of_memory

# Characters that are read of a text of up to 64 KiB: more than any context has of one instruction.
READ_CHARACTERS: Final = 600
# Counting stops here, so that a context costs the same with a million instructions.
MAX_COUNTED: Final = 1_000
# The condition of the index `memories_in_force`, word for word: otherwise SQLite does not use it.
_CURRENT: Final = "superseded_by IS NULL AND (kind = 'instruction' OR (kind = 'preference' AND importance >= 0.8))"
# Instructions from a tool, a file or the web are not in force before a person has confirmed them.
_IN_FORCE: Final = f"{_CURRENT} AND {CONFIRMED} AND {HAS_RIGHT}"


@dataclass(frozen=True, slots=True)
class StandingInstruction:
    """An instruction in force, with the beginning of its text. `owner` is the user who gave it; None: for all users."""

    row_id: int
    id: str
    kind: str
    content: str
    created_at: int
    tier: Tier
    source: str
    pinned: bool
    subject: str | None
    owner: str | None
    session: str | None
    source_message: str | None
    confirmed_at: int | None = None


@dataclass(frozen=True, slots=True)
class Applies:
    """The place and time for which instructions are read: user, session (its row, None in the account), channel, time.

    With `until`, those given later are left out.
    """

    user: str | None
    session_row: int | None
    channel: str | None
    now: int
    until: int | None = None


_COLUMNS: Final = select_list(
    StandingInstruction,
    "m",
    content=f"substr(m.content, 1, {READ_CHARACTERS})",
    owner="m.owner_user_id",
    session="(SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row)",
)
_APPLIES: Final = (
    " AND created_at <= coalesce(:until, created_at) AND (expires_at IS NULL OR expires_at > :now)"
    " AND (tier IN ('workspace', 'account')"
    " OR (tier = 'channel' AND channel_id IS :channel) OR (tier = 'conversation' AND session_row IS :session_row))"
)


class StandingInstructions(AgentRepository):
    """The instructions that are in force for an agent, within one transaction."""

    def newest(self, applies: Applies, *, limit: int) -> list[StandingInstruction]:
        """Return the newest instructions that apply: the user's, those of nobody, and shared ones; newest first."""
        found = [one for owner in self._owners(applies) for one in self._of(owner, applies, limit=limit)]
        return sorted(found, key=lambda one: (-one.created_at, -one.row_id))[:limit]

    def count(self, applies: Applies) -> int:
        """Return how many apply, counting at most `MAX_COUNTED` each of the user's, nobody's and shared ones."""
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM memories AS m WHERE agent_id = :agent AND {{owner}}"
            f" AND {of_memory(self._viewer, 'm')} AND {_IN_FORCE}{_APPLIES} LIMIT {MAX_COUNTED})"
        )
        return sum(int(self._value(sql.format(owner=owner), **_parameters(applies))) for owner in self._owners(applies))

    def of_owner(
        self, owner: str | None, *, tenant: str | None = None, limit: int = MAX_COUNTED
    ) -> list[StandingInstruction]:
        """Return an owner's newest instructions, wherever they apply; in the account, those of a tenant."""
        sql = (
            f"SELECT {_COLUMNS} FROM memories AS m WHERE agent_id = :agent AND owner_user_id IS :owner AND {_IN_FORCE}"
            " AND tenant IS :tenant ORDER BY created_at DESC, row_id DESC LIMIT :limit"
        )
        return self._records(StandingInstruction, sql, owner=owner, tenant=tenant, limit=limit)

    def _owners(self, applies: Applies) -> list[str]:
        """Return one condition for each look-up: the user's instructions, nobody's, and those shared by others."""
        # An instruction that waits for approval applies to its owner alone, and to nobody if it has no owner.
        of_nobody = "owner_user_id IS NULL AND visibility <> 'requested'"
        others = "visibility = 'shared' AND owner_user_id IS NOT NULL AND owner_user_id IS NOT :user"
        return [*(["owner_user_id = :user"] if applies.user is not None else []), of_nobody, others]

    def _of(self, owner: str, applies: Applies, *, limit: int) -> list[StandingInstruction]:
        sql = (
            f"SELECT {_COLUMNS} FROM memories AS m WHERE agent_id = :agent AND {owner}"
            f" AND {of_memory(self._viewer, 'm')} AND {_IN_FORCE}{_APPLIES}"
            " ORDER BY created_at DESC, row_id DESC LIMIT :limit"
        )
        return self._records(StandingInstruction, sql, limit=limit, **_parameters(applies))


def _parameters(applies: Applies) -> dict[str, Any]:
    return {
        "user": applies.user,
        "now": applies.now,
        "channel": applies.channel,
        "session_row": applies.session_row,
        "until": applies.until,
    }
