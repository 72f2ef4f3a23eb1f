"""The calls for sessions, channels, scratchpads and summaries, and the one that the hooks of coding agents make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from reverie.calls import Call, InSession, OfOneOrAll, OfUser, Paged, Resource
from reverie.checks import check_depth, check_json, check_label, check_text
from reverie.errors import Rejected
from reverie.fields import MAX_COUNT, MAX_PAGE, ChannelId, Limit, Metadata, Offset, checked, label
from reverie.recall.calls import TokenBudget
from reverie.sessions import types
from reverie.types import Deleted

# A scratchpad is for what an agent needs while it works: a page, not a store.
MAX_ITEMS: Final = 32
MAX_ITEM_CHARACTERS: Final = 240
MAX_KEYS: Final = 256
MAX_KEY_CHARACTERS: Final = 128
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_DESCRIPTION_BYTES: Final = 4 * 1024

# A language model may extract memories from the session before it ends.
_ENDING_SECONDS: Final = 300.0
# It may take several calls of the language model.
_COMPACT_SECONDS: Final = 180.0

Status = Literal["active", "idle", "archived"]


def check_items(field: str, items: Sequence[object]) -> list[str]:
    """Return the list of a scratchpad. Raises `Rejected` naming the invalid item."""
    if isinstance(items, str):
        raise Rejected(f"{field} must be a list of texts, not one text", field=field)
    checked_items = [_check_item(f"{field}[{number}]", item) for number, item in enumerate(items)]
    if len(items) > MAX_ITEMS:
        raise Rejected(f"{len(items)} items; the limit is {MAX_ITEMS}: leave out finished ones", field=field)
    return checked_items


def _check_item(field: str, item: object) -> str:
    if not isinstance(item, str) or not item.strip():
        raise Rejected(f"{field} must be a text that is not blank", field=field)
    if len(item) > MAX_ITEM_CHARACTERS:
        raise Rejected(f"{field} has {len(item):,} characters; the limit is {MAX_ITEM_CHARACTERS}", field=field)
    check_text(field, item, 4 * MAX_ITEM_CHARACTERS)
    return item


def check_value(field: str, value: Any) -> Any:
    """Return the value of a scratchpad key. Raises `Rejected` unless it is JSON of at most 64 KiB."""
    check_depth(field, value)
    check_json(field, value, MAX_VALUE_BYTES)
    return value


def check_description(field: str, description: str) -> str:
    """Return the description of a channel. Raises `Rejected` if it is too long."""
    check_text(field, description, MAX_DESCRIPTION_BYTES)
    return description


def check_key(field: str, key: object) -> str:
    """Return a scratchpad key. Raises `Rejected`."""
    checked_key: str = check_label(field, key, required=True, limit=MAX_KEY_CHARACTERS)
    return checked_key


Description = Annotated[str, checked(check_description, "What the channel is about, at most 4 KiB.")]
Items = Annotated[Sequence[str], checked(check_items, "At most 32 items of 240 characters.")]
Key = Annotated[str, checked(check_key, "The key of an entry, at most 128 characters.")]
Value = Annotated[Any, checked(check_value, "Any JSON value of at most 64 KiB.")]
RefCode = Annotated[str, label("The reference code of a session.")]


def _check_ids(field: str, ids: Sequence[str]) -> list[str]:
    if len(ids) > MAX_PAGE:
        raise Rejected(f"{field} has {len(ids):,} ids; at most {MAX_PAGE:,}", field=field)
    return [str(check_label(field, one, required=True)) for one in ids]


class ListSessions(OfOneOrAll[types.SessionList], frozen=True):
    """List sessions, most recently active first; archived ones only with `status="archived"`."""

    route: ClassVar = "GET /v1/sessions"
    limit: Limit = 50
    offset: Offset = 0
    status: Annotated[Status | None, Meta(description="Only sessions with this status.")] = None
    ids: Annotated[Sequence[str], checked(_check_ids, "Only these sessions, also archived ones.")] = ()


class GetSession(InSession[types.Session], frozen=True):
    """Return a session. Raises `NotFound`."""

    route: ClassVar = "GET /v1/sessions/{session}"


class GetSessionByRef(OfUser[types.Session], frozen=True):
    """Return the session with this reference code. Raises `NotFound`."""

    route: ClassVar = "GET /v1/sessions/by-ref/{ref_code}"
    ref_code: RefCode


class ListMessages(InSession[types.MessageList], kw_only=True, frozen=True):
    """List the messages of a session, oldest first; with `around`, the page that has this message in its middle.

    Raises `NotFound`, also for a message that the session does not have.
    """

    route: ClassVar = "GET /v1/sessions/{session}/messages"
    limit: Limit = 100
    offset: Offset = 0
    around: Annotated[str | None, label("The id of a message of the session, instead of an offset.")] = None


class ListNewestMessages(InSession[types.MessageList], frozen=True):
    """Return the last messages of a session in the order in which they were stored, with their originals.

    At most `limit`, fewer if they have more than 16 MiB. For earlier ones, give the first one's sequence as `before`.
    Raises `NotFound`.
    """

    route: ClassVar = "GET /v1/sessions/{session}/newest"
    limit: Limit = 100
    before: Annotated[int, Meta(ge=1, le=MAX_COUNT, description="Only messages with a lower sequence.")] | None = None


class ForgetNewestMessage(InSession[types.PoppedMessage], frozen=True):
    """Delete the message of a session that was stored last, with everything derived from it, and return it.

    Calls at the same time each get a different message.
    """

    route: ClassVar = "DELETE /v1/sessions/{session}/newest"


class GetWorkingMemory(InSession[types.MessageList], frozen=True):
    """Return the newest messages of a session (at most 50), oldest first, usually from memory. Raises `NotFound`."""

    route: ClassVar = "GET /v1/sessions/{session}/working"


class ExportSession(InSession[types.SessionExport], frozen=True):
    """Return a session with all its messages. Raises `NotFound`."""

    route: ClassVar = "GET /v1/sessions/{session}/export"


class ForgetSession(InSession[Deleted], frozen=True):
    """Delete a session with all messages, stored or not yet, and everything derived; return False if there was none."""

    route: ClassVar = "DELETE /v1/sessions/{session}"


class DeleteWorkspace(Call[Deleted], frozen=True):
    """Delete the whole workspace of this client permanently, for all agents; return False if there was none."""

    route: ClassVar = "DELETE /v1/workspace"
    required_scope: ClassVar = "operate"


class ListWorkspaces(Paged[types.WorkspaceList], frozen=True):
    """List all workspaces with the numbers of their agents, sessions and memories, by name."""

    route: ClassVar = "GET /v1/workspaces"
    required_scope: ClassVar = "operate"


class ListAgents(Paged[types.AgentList], frozen=True):
    """List the agents of this client's workspace with the numbers of their sessions and memories, by name."""

    route: ClassVar = "GET /v1/agents"


class StartSession(InSession[types.Session], kw_only=True, frozen=True):
    """Create a session before its first message, or reopen an idle one, whose fields and messages stay unchanged.

    Raises `Rejected`, and `Conflict` if it is archived or another session has this chat.
    """

    route: ClassVar = "POST /v1/sessions/{session}/start"
    user: Annotated[str | None, label("The end user.")] = None
    provider: Annotated[str | None, label("The chat platform.")] = None
    chat_id: Annotated[str | None, label("The id of the chat on that platform.")] = None
    channel: ChannelId | None = None
    metadata: Metadata = {}  # noqa: RUF012 - msgspec copies it

    def checked(self) -> StartSession:
        """Raise `Rejected` if only one of `provider` and `chat_id` is given."""
        if bool(self.provider) != bool(self.chat_id):
            raise Rejected("provider and chat_id go together", field="chat_id" if self.provider else "provider")
        return self


class CloseSession(InSession[types.Session], frozen=True):
    """End an active session: extract memories once more, delete its conversation memories, and make it idle.

    Raises `NotFound`, and `Conflict` for a session that is not active.
    """

    route: ClassVar = "POST /v1/sessions/{session}/idle"
    response_timeout_seconds: ClassVar = _ENDING_SECONDS


class ArchiveSession(InSession[types.Session], kw_only=True, frozen=True):
    """Archive an idle session, or with `force` an active one. Raises `NotFound` and `Conflict`."""

    route: ClassVar = "POST /v1/sessions/{session}/archive"
    response_timeout_seconds: ClassVar = _ENDING_SECONDS
    force: Annotated[bool, Meta(description="Archive an active session too.")] = False


class GetSummary(InSession[types.SessionSummary], frozen=True):
    """Return the rolling summary of a session and what it covers; the text is empty before the first summary.

    Raises `NotFound` and `Unavailable`.
    """

    route: ClassVar = "GET /v1/sessions/{session}/summary"


class CompactSession(InSession[types.Compacted], frozen=True):
    """Condense the oldest turns of a session now, until its summary and the other turns fit into the token budget.

    Without a budget, the settings of the rolling summary apply. The newest turn is never condensed and no message is
    deleted: `restore` with the same budget then covers everything. Raises `Rejected`, `NotFound` and `Unavailable`.
    """

    route: ClassVar = "POST /v1/sessions/{session}/compact"
    response_timeout_seconds: ClassVar = _COMPACT_SECONDS
    token_budget: TokenBudget | None = None


class MoveSession(InSession[types.Session], frozen=True):
    """Move a session to an existing channel. Raises `NotFound`."""

    route: ClassVar = "PUT /v1/sessions/{session}/channel"
    channel: ChannelId


class ListChannels(Call[types.ChannelList], frozen=True):
    """List all channels with the numbers of their sessions and memories: the default one first, then by id."""

    route: ClassVar = "GET /v1/channels"


class _InChannel(Call[types.Channel], frozen=True):
    channel: ChannelId


class GetChannel(_InChannel, frozen=True):
    """Return a channel. Raises `NotFound`."""

    route: ClassVar = "GET /v1/channels/{channel}"


class CreateChannel(Call[types.Channel], frozen=True, rename={"channel": "id"}):
    """Create a channel. Raises `Rejected`, and `Conflict` if it exists."""

    route: ClassVar = "POST /v1/channels"
    channel: ChannelId
    description: Description = ""


class DescribeChannel(_InChannel, frozen=True):
    """Set the description of a channel. Raises `Rejected` and `NotFound`."""

    route: ClassVar = "PATCH /v1/channels/{channel}"
    description: Description


class DeleteChannel(Call[Deleted], frozen=True):
    """Delete an empty channel; return False if there was none.

    Raises `Conflict` for the default channel and one that is in use.
    """

    route: ClassVar = "DELETE /v1/channels/{channel}"
    channel: ChannelId


class GetScratchpad(InSession[types.ScratchpadList], frozen=True):
    """Return the list of a session's scratchpad; empty if nothing was written."""

    route: ClassVar = "GET /v1/scratchpads/{session}/items"


class WriteScratchpad(InSession[types.ScratchpadList], frozen=True):
    """Replace the list of a session's scratchpad. Raises `Rejected`."""

    route: ClassVar = "PUT /v1/scratchpads/{session}/items"
    items: Items

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"bytes": sum(len(item.encode()) for item in self.items)}


class ClearScratchpad(InSession[types.Cleared], frozen=True):
    """Delete the list of a session's scratchpad; return how many items it had."""

    route: ClassVar = "DELETE /v1/scratchpads/{session}/items"
    required_scope: ClassVar = "write"


class ListScratchpadKeys(InSession[types.ScratchpadEntries], frozen=True):
    """Return all keys of a session's scratchpad with their values, sorted by key."""

    route: ClassVar = "GET /v1/scratchpads/{session}/keys"


class GetScratchpadKey(InSession[types.ScratchpadEntry], frozen=True):
    """Return a key of a session's scratchpad with its value. Raises `NotFound`."""

    route: ClassVar = "GET /v1/scratchpads/{session}/keys/{key}"
    key: Key


class WriteScratchpadKey(InSession[types.ScratchpadEntry], frozen=True):
    """Set a key of a session's scratchpad; a session has at most 256 keys. Raises `Rejected`."""

    route: ClassVar = "PUT /v1/scratchpads/{session}/keys/{key}"
    key: Key
    value: Value

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"bytes": len(self.key.encode()) + len(msgspec.json.encode(self.value))}


class DeleteScratchpadKey(InSession[Deleted], frozen=True):
    """Delete a key of a session's scratchpad; return False if there was none."""

    route: ClassVar = "DELETE /v1/scratchpads/{session}/keys/{key}"
    required_scope: ClassVar = "write"
    key: Key


class ClearScratchpadKeys(InSession[types.Cleared], frozen=True):
    """Delete all keys of a session's scratchpad; return how many there were."""

    route: ClassVar = "DELETE /v1/scratchpads/{session}/keys"
    required_scope: ClassVar = "write"


class RecordEvent(Call[types.HookOutput], kw_only=True, frozen=True):
    """Take an event of a coding agent's hook: a prompt, an answer or the result of a tool becomes a message.

    At the start of a session, return what the hook prints, so that the agent begins with what is remembered. Other
    events are accepted and change nothing. Sending an `id` again changes nothing. Raises `Rejected` for an event that
    names no session.
    """

    route: ClassVar = "POST /v1/coding-agents/events"
    adds: ClassVar = {"messages": 1}
    is_idempotent: ClassVar = True  # by the id
    # What a tool returned may be a whole file; only its beginning is stored.
    body_bytes: ClassVar = 16 * 1024 * 1024
    tool: Annotated[types.CodingAgent, Meta(description="The coding agent of the hook.")]
    id: Annotated[str, label("The id of the event, made once by the hook.")]
    event: Annotated[Mapping[str, Any], Meta(description="The hook's input, unchanged.")]
    at: Annotated[datetime | None, Meta(description="When it happened; by default now.")] = None
