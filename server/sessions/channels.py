"""/v1/channels: the topics of a workspace; and the channel that a session lies in."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.sessions import channels as topics
from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import NotFound
from reverie.sessions.channel_types import Channel, ChannelDescription, ChannelDraft, ChannelList, ChannelMove
from reverie.sessions.checks import check_channel, check_description
from reverie.types import Deleted, Session
from server.answers import answer
from server.caller import Caller, decoded, query_of, session_from
from server.openapi import operation
from server.services import Services
from storage.stores import Store


def routes(services: Services) -> APIRouter:
    """The routes of channels."""
    router = APIRouter(tags=["channels"])
    _add_reading(router, services)
    _add_changing(router, services)
    _add_moving(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/channels", openapi_extra=operation(ChannelList))
    async def get_channels(request: Request) -> Response:
        """All channels with what lies in them: the default first; those too that only messages have named."""
        query_of(request)
        caller = services.caller(request)

        def work() -> ChannelList:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return ChannelList(channels=[topics.ONLY_DEFAULT])
            return ChannelList(channels=topics.list_channels(store, agent=caller.agent))

        return answer(await services.threads.run(work))

    @router.get("/v1/channels/{channel}", openapi_extra=operation(Channel))
    async def get_channel(request: Request, channel: str) -> Response:
        """One channel."""
        query_of(request)
        caller, name = services.caller(request), _channel_from(channel)

        def work() -> Channel:
            store = services.store_to_read(caller.workspace)
            if store is None and name == DEFAULT_CHANNEL:
                return topics.ONLY_DEFAULT
            return topics.read_channel(_there(store, caller, name), agent=caller.agent, channel=name)

        return answer(await services.threads.run(work))


def _add_changing(router: APIRouter, services: Services) -> None:
    here = services.runtime

    @router.post("/v1/channels", openapi_extra=operation(Channel, body=ChannelDraft))
    async def post_channel(request: Request) -> Response:
        """Make a channel."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, ChannelDraft)
        name, said = check_channel(body.id, field="id"), check_description(body.description)

        def work() -> Channel:
            store = here.store(caller.workspace)
            return topics.create_channel(store, agent=caller.agent, channel=name, description=said, now=here.now())

        return answer(await services.threads.run(work))

    @router.patch("/v1/channels/{channel}", openapi_extra=operation(Channel, body=ChannelDescription))
    async def patch_channel(request: Request, channel: str) -> Response:
        """Say what a channel is about."""
        query_of(request)
        caller, name = services.caller(request), _channel_from(channel)
        said = check_description((await services.body(request, ChannelDescription)).description)

        def work() -> Channel:
            store = here.store(caller.workspace)
            return topics.describe_channel(store, agent=caller.agent, channel=name, description=said, now=here.now())

        return answer(await services.threads.run(work))

    @router.delete("/v1/channels/{channel}", openapi_extra=operation(Deleted))
    async def delete_channel(request: Request, channel: str) -> Response:
        """Delete a channel in which nothing lies; never the default one."""
        query_of(request)
        caller, name = services.caller(request), _channel_from(channel)

        def work() -> Deleted:
            store = _there(services.store_to_read(caller.workspace), caller, name)
            topics.delete_channel(store, agent=caller.agent, channel=name)
            return Deleted(deleted=True)

        return answer(await services.threads.run(work))


def _add_moving(router: APIRouter, services: Services) -> None:
    @router.put("/v1/sessions/{session}/channel", openapi_extra=operation(Session, body=ChannelMove))
    async def put_channel(request: Request, session: str) -> Response:
        """Put a session into another channel."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        channel = check_channel((await services.body(request, ChannelMove)).channel)
        here = services.runtime

        def work() -> Session:
            store = services.store_of_session(caller, name)
            return topics.move_session(store, agent=caller.agent, session=name, channel=channel, now=here.now())

        return answer(await services.threads.run(work))


def _there(store: Store | None, caller: Caller, channel: str) -> Store:
    if store is None:
        raise NotFound(f"agent {caller.agent} has no channel {channel!r}: create it first", field="channel")
    return store


def _channel_from(encoded: str) -> str:
    return check_channel(decoded(encoded.encode(), "channel"))
