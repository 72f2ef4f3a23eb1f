"""The calls for the working notes of a session, as a list and as keys with values; for both kinds of client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from reverie.checks import check_session
from reverie.http import HttpTransport, path_segment
from reverie.sessions.checks import check_items, check_key, check_value
from reverie.sessions.scratchpad_types import Cleared, ScratchpadEntries, ScratchpadEntry, ScratchpadList
from reverie.types import Deleted

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ScratchpadCalls:
    """What an agent notes while it works in a session, for a client that has a transport.

    The first note makes the session; what was never written reads as empty. Notes are kept when the session is
    archived, and gone when it is forgotten.
    """

    _http: HttpTransport

    def scratchpad(self, session: str) -> list[str]:
        """The list of a session; empty where nothing was written."""
        return self._http.call("GET", _path(session, "/items"), ScratchpadList).items

    def write_scratchpad(self, session: str, items: Iterable[str]) -> list[str]:
        """Put a list in the place of what was there: at most 32 items of 240 characters. Raises `Rejected`."""
        body = {"items": check_items(items)}
        return self._http.call("PUT", _path(session, "/items"), ScratchpadList, body=body).items

    def clear_scratchpad(self, session: str) -> int:
        """Remove the list; returns how many items it had."""
        return self._http.call("DELETE", _path(session, "/items"), Cleared).cleared

    def scratchpad_keys(self, session: str) -> list[ScratchpadEntry]:
        """All keys of a session with their values, in the order of the keys."""
        return self._http.call("GET", _path(session, "/keys"), ScratchpadEntries).entries

    def scratchpad_key(self, session: str, key: str) -> ScratchpadEntry:
        """One key. Raises `NotFound`."""
        return self._http.call("GET", _key_path(session, key), ScratchpadEntry)

    def write_scratchpad_key(self, session: str, key: str, value: Any) -> ScratchpadEntry:
        """Set a key to anything that JSON can say in 64 KiB; a session has at most 256 keys. Raises `Rejected`."""
        return self._http.call("PUT", _key_path(session, key), ScratchpadEntry, body={"value": check_value(value)})

    def delete_scratchpad_key(self, session: str, key: str) -> bool:
        """Remove a key; False where there was none."""
        return self._http.call("DELETE", _key_path(session, key), Deleted).deleted

    def clear_scratchpad_keys(self, session: str) -> int:
        """Remove all keys; returns how many there were."""
        return self._http.call("DELETE", _path(session, "/keys"), Cleared).cleared


class AsyncScratchpadCalls:
    """The same, for asyncio."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    async def scratchpad(self, session: str) -> list[str]:
        """See `Reverie.scratchpad`."""
        return await self._run(self._sync.scratchpad, session)

    async def write_scratchpad(self, session: str, items: Iterable[str]) -> list[str]:
        """See `Reverie.write_scratchpad`."""
        return await self._run(self._sync.write_scratchpad, session, items)

    async def clear_scratchpad(self, session: str) -> int:
        """See `Reverie.clear_scratchpad`."""
        return await self._run(self._sync.clear_scratchpad, session)

    async def scratchpad_keys(self, session: str) -> list[ScratchpadEntry]:
        """See `Reverie.scratchpad_keys`."""
        return await self._run(self._sync.scratchpad_keys, session)

    async def scratchpad_key(self, session: str, key: str) -> ScratchpadEntry:
        """See `Reverie.scratchpad_key`."""
        return await self._run(self._sync.scratchpad_key, session, key)

    async def write_scratchpad_key(self, session: str, key: str, value: Any) -> ScratchpadEntry:
        """See `Reverie.write_scratchpad_key`."""
        return await self._run(self._sync.write_scratchpad_key, session, key, value)

    async def delete_scratchpad_key(self, session: str, key: str) -> bool:
        """See `Reverie.delete_scratchpad_key`."""
        return await self._run(self._sync.delete_scratchpad_key, session, key)

    async def clear_scratchpad_keys(self, session: str) -> int:
        """See `Reverie.clear_scratchpad_keys`."""
        return await self._run(self._sync.clear_scratchpad_keys, session)


def _path(session: str, rest: str) -> str:
    return f"/v1/scratchpads/{path_segment(check_session(session))}{rest}"


def _key_path(session: str, key: str) -> str:
    return _path(session, f"/keys/{path_segment(check_key(key))}")
