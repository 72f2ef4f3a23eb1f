"""Filters for memories: the rows that a checked listing asks for."""

from __future__ import annotations

from reverie.memories.calls import ListMemories
from storage.memories.records import MemoryFilter


def memory_filter(call: ListMemories) -> MemoryFilter:
    """Return the filter of a checked call."""
    return MemoryFilter(
        tiers=() if call.tier is None else (call.tier,),
        lifetimes=() if call.lifetime is None else (call.lifetime,),
        kinds=() if call.kind is None else (call.kind,),
        sources=() if call.source is None else (call.source,),
        tags=tuple(call.tags),
        session=call.session,
        channel=call.channel,
        owner=call.owner_user_id,
        text=call.text or None,
        active=None if call.superseded else True,
    )
