"""/v1/channels and /v1/sessions/{session}/channel: manage channels, and move sessions between them."""

from __future__ import annotations

from memory.sessions import channels
from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import NotFound
from reverie.sessions import calls
from reverie.sessions.channel_types import Channel, ChannelList
from reverie.sessions.types import Session
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.stores import Store

endpoints = Endpoints("channels")


@endpoints.serves(calls.ListChannels)
def _list_channels(services: Services, caller: Caller, _: calls.ListChannels) -> ChannelList:
    store = services.existing_store(caller.workspace)
    if store is None:
        return ChannelList(channels=[channels.ONLY_DEFAULT])
    return ChannelList(channels=channels.list_channels(store, agent=caller.agent))


@endpoints.serves(calls.GetChannel)
def _get_channel(services: Services, caller: Caller, call: calls.GetChannel) -> Channel:
    if services.existing_store(caller.workspace) is None and call.channel == DEFAULT_CHANNEL:
        return channels.ONLY_DEFAULT
    return channels.read_channel(_store(services, caller, call.channel), agent=caller.agent, channel=call.channel)


@endpoints.serves(calls.CreateChannel)
def _create_channel(services: Services, caller: Caller, call: calls.CreateChannel) -> Channel:
    runtime = services.runtime
    return channels.create_channel(
        runtime.store(caller.workspace),
        agent=caller.agent,
        channel=call.channel,
        description=call.description,
        now=runtime.now(),
    )


@endpoints.serves(calls.DescribeChannel)
def _describe_channel(services: Services, caller: Caller, call: calls.DescribeChannel) -> Channel:
    runtime = services.runtime
    return channels.describe_channel(
        runtime.store(caller.workspace),
        agent=caller.agent,
        channel=call.channel,
        description=call.description,
        now=runtime.now(),
    )


@endpoints.serves(calls.DeleteChannel)
def _delete_channel(services: Services, caller: Caller, call: calls.DeleteChannel) -> Deleted:
    try:
        channels.delete_channel(_store(services, caller, call.channel), agent=caller.agent, channel=call.channel)
    except NotFound:
        return Deleted(deleted=False)
    return Deleted(deleted=True)


@endpoints.serves(calls.MoveSession)
def _move_session(services: Services, caller: Caller, call: calls.MoveSession) -> Session:
    store = services.store_of_session(caller, call)
    return channels.move_session(
        store, agent=caller.agent, session=call.session, channel=call.channel, now=services.runtime.now()
    )


def _store(services: Services, caller: Caller, channel: str) -> Store:
    store = services.existing_store(caller.workspace)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no channel {channel!r}: create it first", field="channel")
    return store
