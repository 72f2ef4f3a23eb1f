"""Who asks in a call: the user that it names, else the users of the session that it names, else nobody."""

from __future__ import annotations

from storage.rows import execute
from storage.stores import Store
from storage.viewer import Viewer

_SESSION = "SELECT user_id, is_group FROM sessions WHERE agent_id = :agent AND id = :session"


def viewer_of(store: Store | None, agent: str, *, user: str | None, session: str | None) -> Viewer:
    """Return the viewer of a call: its `user`, else those of its `session`; `store` is None before anything is stored.

    A session of several users reads as what all of them see: itself, and what belongs to nobody.
    """
    if user is not None or session is None or store is None:
        return Viewer(user)
    with store.reading() as tx:
        found = execute(tx.connection, _SESSION, agent=agent, session=session).one_or_none()
    if found is None:
        return Viewer()
    return Viewer(group=session) if found.is_group else Viewer(found.user_id)
