"""The call that the hooks of coding agents make."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from reverie.calls import Call, Resource
from reverie.errors import Rejected
from reverie.fields import label
from reverie.sessions.coding_types import CodingAgent, HookOutput


class RecordEvent(Call[HookOutput], kw_only=True, frozen=True):
    """Take an event of a coding agent's hook: a prompt, an answer or the result of a tool becomes a message.

    At the start of a session, return what the hook prints, so that the agent begins with what is remembered. Other
    events are accepted and change nothing. Sending an `id` again changes nothing. Raises `Rejected` for an event that
    names no session.
    """

    route: ClassVar = "POST /v1/coding-agents/events"
    is_idempotent: ClassVar = True  # by the id
    # What a tool returned may be a whole file; only its beginning is stored.
    body_bytes: ClassVar = 16 * 1024 * 1024
    tool: Annotated[CodingAgent, Meta(description="Whose hook it is.")]
    id: Annotated[str, label("The id of the event, made once by the hook.")]
    event: Annotated[Mapping[str, Any], Meta(description="What the hook got, as it is.")]
    at: Annotated[datetime | None, Meta(description="When it happened; by default now.")] = None

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"messages": 1}

    def checked(self) -> RecordEvent:
        """Raise `Rejected` for a time without a time zone."""
        if self.at is not None and self.at.tzinfo is None:
            raise Rejected("at needs a time zone, as in 2026-05-01T12:00:00Z", field="at")
        return self
