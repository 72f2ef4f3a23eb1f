"""/v1/coding-agents: what the hooks of coding agents hand over, and what a session begins with."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from adapters.histories.hook_events import HookEvent, read_event
from reverie.errors import Conflict, NotFound
from reverie.pipeline.calls import IngestMessages
from reverie.recall.calls import GetContext
from reverie.sessions.calls import StartSession
from reverie.sessions.coding_calls import RecordEvent
from reverie.sessions.coding_types import HookContext, HookOutput
from server.authorisation import require_scope
from server.caller import Caller
from server.endpoints import Endpoints
from server.pipeline.messages import ingest_messages
from server.recall.context import get_context
from server.services import Services
from server.sessions.lifecycle import start
from server.sessions.openings import opening_of

endpoints = Endpoints("coding agents")

# Codex stores what is longer in a file instead of showing it to the model.
_CONTEXT_TOKENS: Final = 2_000


@endpoints.serves(RecordEvent)
def _record_event(services: Services, caller: Caller, call: RecordEvent) -> HookOutput:
    event = read_event(call.tool, call.id, call.event, call.at)
    if event.messages:
        ingest_messages(services, caller, IngestMessages(messages=event.messages, session=event.session))
    if not event.starts:
        return HookOutput()
    require_scope(caller.principal, "read")
    with contextlib.suppress(Conflict):  # an archived one stays so
        metadata = {"source": call.tool, "cwd": event.cwd} if event.cwd else {"source": call.tool}
        start(services, caller, StartSession(event.session, user=caller.user, metadata=metadata))
    text = _context(services, caller, event)
    if not text:
        return HookOutput()
    if call.tool == "cursor":
        return HookOutput(additional_context=text)
    return HookOutput(hook_specific_output=HookContext(hook_event_name=event.name, additional_context=text))


def _context(services: Services, caller: Caller, event: HookEvent) -> str:
    """Return what the agent should know of the project and its user; empty if nothing is remembered."""
    query = f"What should be known about the project {event.project}?" if event.project else "What should be known?"
    asked = GetContext(
        event.session,
        query=query,
        user=caller.user,
        token_budget=_CONTEXT_TOKENS + services.runtime.settings.system_prompt_buffer,
    )
    try:
        found = get_context(services, caller, asked)
        if not found.memories:  # then without a search: that nothing fits is nothing to tell
            found = get_context(services, caller, msgspec.structs.replace(asked, query=None))
    except NotFound:
        return ""
    included_ids = {one.id for one in (*found.memories, *found.instructions)}
    opening = opening_of(
        services,
        caller,
        session=event.session,
        folder=event.cwd,
        included_ids=included_ids,
        room=_CONTEXT_TOKENS - found.tokens,
    )
    if not (found.messages or included_ids or opening):
        return ""
    return "\n\n".join(part for part in (found.text.rstrip(), opening) if part)
