"""The calls for channels, the topics of a workspace; for both kinds of client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from reverie.checks import check_session
from reverie.http import HttpTransport, path_segment, session_path
from reverie.sessions.channel_types import Channel, ChannelList
from reverie.sessions.checks import check_channel, check_description
from reverie.types import Deleted, Session

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChannelCalls:
    """What conversations are about, for a client that has a transport.

    A message may name a channel that nobody has made. Sessions that name none lie in the default one, "general".
    """

    _http: HttpTransport

    def channels(self) -> list[Channel]:
        """All channels with how much lies in them: the default first, then by id."""
        return self._http.call("GET", "/v1/channels", ChannelList).channels

    def channel(self, channel: str) -> Channel:
        """One channel. Raises `NotFound`."""
        return self._http.call("GET", _path(channel), Channel)

    def create_channel(self, channel: str, description: str = "") -> Channel:
        """Make a channel. Raises `Rejected`, and `Conflict` where it was made before."""
        body = {"id": check_channel(channel), "description": check_description(description)}
        return self._http.call("POST", "/v1/channels", Channel, body=body)

    def describe_channel(self, channel: str, description: str) -> Channel:
        """Say what a channel is about. Raises `Rejected`, `NotFound`."""
        body = {"description": check_description(description)}
        return self._http.call("PATCH", _path(channel), Channel, body=body)

    def delete_channel(self, channel: str) -> bool:
        """Delete an empty channel. Raises `NotFound`, and `Conflict` for the default and where something lies in it."""
        return self._http.call("DELETE", _path(channel), Deleted).deleted

    def move_session(self, session: str, channel: str) -> Session:
        """Put a session into a channel that exists. Raises `NotFound`."""
        path = session_path(check_session(session), "/channel")
        return self._http.call("PUT", path, Session, body={"channel": check_channel(channel)})


class AsyncChannelCalls:
    """The same, for asyncio."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    async def channels(self) -> list[Channel]:
        """See `Reverie.channels`."""
        return await self._run(self._sync.channels)

    async def channel(self, channel: str) -> Channel:
        """See `Reverie.channel`."""
        return await self._run(self._sync.channel, channel)

    async def create_channel(self, channel: str, description: str = "") -> Channel:
        """See `Reverie.create_channel`."""
        return await self._run(self._sync.create_channel, channel, description)

    async def describe_channel(self, channel: str, description: str) -> Channel:
        """See `Reverie.describe_channel`."""
        return await self._run(self._sync.describe_channel, channel, description)

    async def delete_channel(self, channel: str) -> bool:
        """See `Reverie.delete_channel`."""
        return await self._run(self._sync.delete_channel, channel)

    async def move_session(self, session: str, channel: str) -> Session:
        """See `Reverie.move_session`."""
        return await self._run(self._sync.move_session, session, channel)


def _path(channel: str) -> str:
    return f"/v1/channels/{path_segment(check_channel(channel))}"
