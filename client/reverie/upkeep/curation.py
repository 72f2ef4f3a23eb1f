"""The calls for the log of what background work did to memories, and for undoing it; for both kinds of client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from reverie.checks import check_label
from reverie.errors import Rejected
from reverie.http import HttpTransport, path_segment
from reverie.upkeep.curation_types import CurationEntry, CurationList, Undone

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Each entry is a transaction of its own, of some milliseconds; a month of an agent's has thousands.
_ALL_SECONDS: Final = 300.0


class CurationCalls:
    """What jobs did to this agent's memories, for a client that has a transport."""

    _http: HttpTransport

    def curation(
        self,
        limit: int = 50,
        offset: int = 0,
        *,
        memory: str | None = None,
        job: str | None = None,
        action: str | None = None,
    ) -> list[CurationEntry]:
        """What jobs did, the newest first, without the rows: about a memory, by a job ("dream-sweep"), of an action.

        The ids of the account tier's entries begin with "account-".
        """
        query = {"limit": limit, "offset": offset, "memory": memory, "job": job, "action": action}
        return self._http.call("GET", "/v1/curation", CurationList, query=query).entries

    def curation_entry(self, entry: str) -> CurationEntry:
        """One entry with the rows that it changed, before and after. Raises `NotFound`."""
        return self._http.call("GET", _path(entry), CurationEntry)

    def undo(self, entry: str) -> CurationEntry:
        """Put back all that an entry changed: rows, vectors and words. What was undone is not done again by a job.

        Raises `NotFound`, and `Conflict` where something changed since; the error names what to undo first.
        """
        return self._http.call("POST", _path(entry, "/undo"), CurationEntry)

    def undo_all(
        self,
        *,
        job: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        everything: bool = False,
    ) -> Undone:
        """Undo all entries of a job or an action, or since a moment (with a time zone), the newest first.

        Those that cannot be undone are in `failed` with the reason. Raises `Rejected` where nothing is named, unless
        `everything` says that all is meant.
        """
        if since is not None and since.tzinfo is None:
            raise Rejected("since needs a time zone", field="since")
        body: dict[str, Any] = {"job": job, "action": action, "since": since, "all": everything}
        return self._http.call("POST", "/v1/curation/undo", Undone, body=body, timeout_seconds=_ALL_SECONDS)


class AsyncCurationCalls:
    """The same, for asyncio."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    async def curation(
        self,
        limit: int = 50,
        offset: int = 0,
        *,
        memory: str | None = None,
        job: str | None = None,
        action: str | None = None,
    ) -> list[CurationEntry]:
        """See `Reverie.curation`."""
        return await self._run(self._sync.curation, limit, offset, memory=memory, job=job, action=action)

    async def curation_entry(self, entry: str) -> CurationEntry:
        """See `Reverie.curation_entry`."""
        return await self._run(self._sync.curation_entry, entry)

    async def undo(self, entry: str) -> CurationEntry:
        """See `Reverie.undo`."""
        return await self._run(self._sync.undo, entry)

    async def undo_all(
        self,
        *,
        job: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        everything: bool = False,
    ) -> Undone:
        """See `Reverie.undo_all`."""
        return await self._run(self._sync.undo_all, job=job, action=action, since=since, everything=everything)


def _path(entry: str, rest: str = "") -> str:
    return f"/v1/curation/{path_segment(check_label('id', entry, required=True))}{rest}"
