"""Viewers: end users of an agent, and the content of the agent that each of them may see.

Content belongs to the user who was named when it was stored, and only that user sees it unless it is shared. Everybody
sees rows without an owner. Each user of a session with several users sees it. Jobs have no viewer and see everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from storage.engines import Connection
from storage.rows import execute

# The tenant of a workspace for which none was set.
LOCAL_TENANT: Final = "local"
_GROUPS: Final = (
    "SELECT DISTINCT 's:' || session_row FROM session_users WHERE agent_id = :agent AND user_id = :viewer"
    " UNION ALL SELECT audience FROM sessions WHERE agent_id = :agent AND id = :viewer_group AND is_group"
)


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user, or nobody in particular; `group` is a session of several users, read with their common rights.

    In the account's store, `tenant` is the tenant of the workspace that is read from; None in a workspace.
    """

    user: str | None = None
    group: str | None = None
    tenant: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the conditions below."""
        return {"viewer": self.user, "viewer_group": self.group, "viewer_tenant": self.tenant}


@dataclass(frozen=True, slots=True)
class Audiences:
    """The audiences of chunks that a viewer belongs to. With `everybody`, chunks without an audience are included."""

    names: tuple[str, ...]
    everybody: bool = True


def of_session(viewer: Viewer | None, alias: str) -> str:
    """Return a condition on the sessions under this alias that a viewer may see."""
    if viewer is None:
        return "1"
    if viewer.user is None and viewer.group is None:
        return f"{alias}.user_id IS NULL"
    return (
        f"({alias}.user_id IS NULL OR {alias}.user_id = :viewer OR {alias}.id = :viewer_group OR ({alias}.is_group"
        f" AND EXISTS (SELECT 1 FROM session_users AS vu WHERE vu.session_row = {alias}.row_id"
        " AND vu.user_id = :viewer)))"
    )


def of_message(viewer: Viewer | None, alias: str, session: str) -> str:
    """Return a condition on messages, joined with their sessions, that a viewer may see."""
    return "1" if viewer is None else f"({alias}.visibility = 'shared' OR {of_session(viewer, session)})"


def of_file(viewer: Viewer | None) -> str:
    """Return a condition on the files, under the alias `f`, that a viewer may see."""
    return "1" if viewer is None else _owned(viewer, "f", "user_id")


def of_memory(viewer: Viewer | None, alias: str) -> str:
    """Return a condition on the memories under this alias that a viewer may see."""
    if viewer is None:
        return "1"
    owned = _owned(viewer, alias, "owner_user_id")
    if viewer.tenant is None:
        return owned
    return f"(coalesce({alias}.tenant, '{LOCAL_TENANT}') = :viewer_tenant AND {owned})"


def seen_by_several(memory: str) -> str:
    """Return a condition on the memories under this alias that more than one user sees.

    A memory without an owner is visible to those who see its session.
    """
    return (
        f"({memory}.visibility = 'shared' OR ({memory}.owner_user_id IS NULL AND coalesce((SELECT os.audience"
        f" FROM sessions AS os WHERE os.row_id = {memory}.session_row), '') NOT LIKE 'u:%'))"
    )


def is_source(message: str, memory: str) -> str:
    """Return a condition on the message under an alias that a memory under another came from.

    An id is unique within a session only: a memory that names a message but no session may mean any with that id.
    """
    return (
        f"{message}.agent_id = {memory}.agent_id AND {message}.id = {memory}.source_message"
        f" AND ({memory}.session_row IS NULL OR {message}.session_row = {memory}.session_row)"
    )


def author_of(memory: str) -> str:
    """Return an expression for the user whose words a memory has: its owner, or else the speaker of its message."""
    return (
        f"coalesce({memory}.owner_user_id, (SELECT min(am.user_id) FROM messages AS am"
        f" WHERE {is_source('am', memory)}))"
    )


def of_schedule(viewer: Viewer | None, alias: str) -> str:
    """Return a condition on schedules, notifications or reminders that a viewer may see.

    These are rows of the viewer, rows of the viewer's groups, and rows without an owner. A row without a user belongs
    to the users of its session; if its session does not exist, the row has no owner.
    """
    if viewer is None:
        return "1"
    return (
        f"({alias}.user_id = :viewer OR ({alias}.user_id IS NULL AND NOT EXISTS (SELECT 1 FROM sessions AS vs"
        f" WHERE vs.agent_id = {alias}.agent_id AND vs.id = {alias}.session_id"
        f" AND ({of_session(viewer, 'vs')}) IS NOT TRUE)))"
    )


def of_own_schedule(viewer: Viewer | None, alias: str) -> str:
    """Return a condition on schedules, notifications or reminders that a viewer may change.

    A user may change rows of that user and of sessions that the user is in, but not rows without an owner.
    """
    if viewer is None or viewer.user is None:
        return of_schedule(viewer, alias)
    return (
        f"({alias}.user_id = :viewer OR ({alias}.user_id IS NULL AND EXISTS (SELECT 1 FROM sessions AS vs"
        f" WHERE vs.agent_id = {alias}.agent_id AND vs.id = {alias}.session_id AND vs.user_id IS NOT NULL"
        f" AND {of_session(viewer, 'vs')})))"
    )


def audiences(connection: Connection, agent: str, viewer: Viewer | None) -> Audiences | None:
    """Return the audiences whose chunks a viewer finds; None for all chunks."""
    if viewer is None:
        return None
    names = [] if viewer.user is None else [f"u:{viewer.user}"]
    if viewer.tenant is not None and viewer.tenant != LOCAL_TENANT:
        prefix = f"t:{viewer.tenant}|"
        return Audiences((prefix, *(prefix + name for name in names)), everybody=False)
    if viewer.tenant is None and (viewer.user is not None or viewer.group is not None):
        names += execute(connection, _GROUPS, agent=agent, **viewer.parameters()).scalars()
    return Audiences(tuple(names))


def _owned(viewer: Viewer, alias: str, owner: str) -> str:
    session = of_session(viewer, "vs")
    return (
        f"({alias}.visibility = 'shared' OR {alias}.{owner} = :viewer OR ({alias}.{owner} IS NULL"
        f" AND ({alias}.session_row IS NULL OR EXISTS (SELECT 1 FROM sessions AS vs"
        f" WHERE vs.row_id = {alias}.session_row AND {session}))))"
    )
