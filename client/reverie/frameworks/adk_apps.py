"""The clients and the names by which the services for Google ADK keep what belongs to an app and its users.

An app is an agent of Reverie and a user of the app is an end user, so the server keeps apps and users apart.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID, uuid5

from reverie.client import Reverie

FRAMEWORK: Final = "adk"
# The session whose scratchpad holds the state of an app; that of a user has the user's name behind it.
APP_STATE: Final = "adk-state"
_SESSION: Final = "adk:"
_IDS: Final = UUID("6d0b6c5e-56a7-4a8e-9a0b-3d5f0b8f2a41")


class AppClients:
    """The clients of apps, made when they are first used. Safe to share between threads."""

    def __init__(self, *, url: str | None, token: str | None, workspace: str | None) -> None:
        self._options: Mapping[str, Any] = {"url": url, "token": token, "workspace": workspace}
        self._clients: dict[str, Reverie] = {}
        self._lock = threading.Lock()

    def of(self, app_name: str) -> Reverie:
        """Return the client of an app. Raises `Rejected` for a name that no agent can have."""
        with self._lock:
            if app_name not in self._clients:
                self._clients[app_name] = Reverie(app_name, **self._options)
            return self._clients[app_name]

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        with self._lock:
            for client in self._clients.values():
                client.close()


def session_name(user_id: str, session_id: str) -> str:
    """Return the session of Reverie for a session of a user: ids of sessions may be the same for two users."""
    return f"{_SESSION}{quote(user_id, safe='')}:{session_id}"


def session_id_of(name: str, user_id: str) -> str | None:
    """Return the id of a user's session by its name in Reverie, None for a session of something else."""
    prefix = session_name(user_id, "")
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def user_state_name(user_id: str) -> str:
    """Return the session whose scratchpad holds the state of a user."""
    return f"{APP_STATE}:{quote(user_id, safe='')}"


def derived_id(*parts: str) -> str:
    """Return an id that is the same for the same parts."""
    return str(uuid5(_IDS, "\x1f".join(parts)))
