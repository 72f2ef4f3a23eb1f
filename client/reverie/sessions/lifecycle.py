"""The calls that start and end sessions; for both kinds of client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from reverie.checks import check_label, check_session
from reverie.http import HttpTransport, path_segment, session_path
from reverie.sessions.checks import check_session_metadata
from reverie.types import Session

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")

# A language model may read the session a last time.
_ENDING_SECONDS: Final = 300.0


class SessionLifeCalls:
    """active, idle, archived: for a client that has a transport. A new message makes an idle session active again."""

    _http: HttpTransport

    def start_session(
        self,
        session: str,
        *,
        user: str | None = None,
        provider: str | None = None,
        chat_id: str | None = None,
        channel: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make a session before its first message, or open an idle one again; an active one keeps what it has.

        Raises `Rejected`, and `Conflict` for an archived one.
        """
        where = {"user": user, "provider": provider, "chat_id": chat_id, "channel": channel}
        body = {name: check_label(name, value) for name, value in where.items()}
        path = session_path(check_session(session), "/start")
        return self._http.call("POST", path, Session, body={**body, "metadata": check_session_metadata(metadata)})

    def close_session(self, session: str) -> Session:
        """End an active session: it goes idle, its last memories are extracted, those of the conversation cleared.

        Raises `NotFound`, and `Conflict` for one that is not active.
        """
        path = session_path(check_session(session), "/idle")
        return self._http.call("POST", path, Session, timeout_seconds=_ENDING_SECONDS)

    def archive_session(self, session: str, *, force: bool = False) -> Session:
        """Put an idle session aside; with `force` an active one, too. Raises `NotFound` and `Conflict`."""
        path = session_path(check_session(session), "/archive")
        return self._http.call("POST", path, Session, body={"force": force}, timeout_seconds=_ENDING_SECONDS)

    def session_by_ref(self, ref_code: str) -> Session:
        """The session with this reference code. Raises `NotFound`."""
        code = path_segment(check_label("ref_code", ref_code, required=True))
        return self._http.call("GET", f"/v1/sessions/by-ref/{code}", Session)


class AsyncSessionLifeCalls:
    """The same, for asyncio."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    async def start_session(
        self,
        session: str,
        *,
        user: str | None = None,
        provider: str | None = None,
        chat_id: str | None = None,
        channel: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """See `Reverie.start_session`."""
        return await self._run(
            self._sync.start_session,
            session,
            user=user,
            provider=provider,
            chat_id=chat_id,
            channel=channel,
            metadata=metadata,
        )

    async def close_session(self, session: str) -> Session:
        """See `Reverie.close_session`."""
        return await self._run(self._sync.close_session, session)

    async def archive_session(self, session: str, *, force: bool = False) -> Session:
        """See `Reverie.archive_session`."""
        return await self._run(self._sync.archive_session, session, force=force)

    async def session_by_ref(self, ref_code: str) -> Session:
        """See `Reverie.session_by_ref`."""
        return await self._run(self._sync.session_by_ref, ref_code)
