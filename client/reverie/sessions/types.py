"""Responses of calls about sessions: sessions, messages, summaries, channels, scratchpads, workspaces and agents."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from reverie.types import ListResult


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a session. `token_count` is the caller's, else it was counted or estimated when it was stored."""

    id: str
    session: str
    sequence: int
    role: Literal["user", "assistant", "system", "tool"]
    content: str
    created_at: datetime
    name: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[dict[str, Any]] = []
    token_count: int | None = None
    importance: float = 0.5
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    embedding_error: str | None = None
    consolidated_at: datetime | None = None
    # The end user that it was stored for, if one was named, and "shared" if all users see it.
    user: str | None = None
    visibility: Literal["private", "shared"] | None = None
    # The form that the caller keeps the message in. Only `newest_messages`, `pop_message` and exports return it.
    original: str | None = None


class MessageList(ListResult[Message], frozen=True, kw_only=True, omit_defaults=True):
    """A page of messages, oldest first; `offset` is how many of the session come before it."""

    messages: list[Message]
    offset: int = 0


class PoppedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `sessions.pop_message`: the message that was removed, None if the session had none."""

    message: Message | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation of an agent.

    `title` is the one in its metadata, else its first words. `speakers` are the names in its messages. These were said
    from `first_said_at` to `last_said_at`, and stored from `started_at` to `updated_at`.
    """

    id: str
    ref_code: str
    status: Literal["active", "idle", "archived"]
    started_at: datetime
    updated_at: datetime
    messages: int
    last_sequence: int
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    ended_at: datetime | None = None
    metadata: dict[str, Any] = {}
    # Whether several users take part, each of whom sees it.
    is_group: bool = False
    title: str | None = None
    speakers: list[str] = []
    first_said_at: datetime | None = None
    last_said_at: datetime | None = None


class SessionList(ListResult[Session], frozen=True, kw_only=True):
    """A page of sessions, most recently active first."""

    sessions: list[Session]


class SessionExport(msgspec.Struct, frozen=True, kw_only=True):
    """A session with all its messages, oldest first."""

    session: Session
    messages: list[Message]
    schema_version: int = 1


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The rolling summary of a session: a line for each statement, with date and speaker; empty until it is written.

    It covers `covers` of the session's messages, up to `upper_sequence`, and not the `uncovered` others. `epoch` counts
    how often it was written.
    """

    session: str
    text: str
    tokens: int
    epoch: int
    upper_sequence: int
    covers: int
    uncovered: int


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `sessions.compact`: how many messages were condensed, and the summary."""

    condensed: int
    summary: SessionSummary


class Channel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A channel with the number of its sessions and memories.

    `created_at` is when it was created or first used; an empty default channel has none.
    """

    id: str
    description: str
    is_default: bool
    sessions: int
    memories: int
    created_at: datetime | None = None


class ChannelList(ListResult[Channel], frozen=True, kw_only=True):
    """All channels: the default first, then by id."""

    channels: list[Channel]


class ScratchpadList(ListResult[str], frozen=True, kw_only=True, omit_defaults=True):
    """The list of a session and when it was last written; empty if it never was."""

    items: list[str]
    updated_at: datetime | None = None


class ScratchpadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its value, which may be any JSON."""

    key: str
    value: Any
    created_at: datetime
    updated_at: datetime


class ScratchpadEntries(ListResult[ScratchpadEntry], frozen=True, kw_only=True):
    """All keys of a session, sorted by key."""

    entries: list[ScratchpadEntry]


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """The number of deleted entries."""

    cleared: int


class WorkspaceSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workspace and the numbers of its agents, sessions and current memories, without those of the account.

    With an `error` it cannot be read, and the numbers are unknown.
    """

    name: str
    agents: int = 0
    sessions: int = 0
    memories: int = 0
    error: str = ""


class WorkspaceList(ListResult[WorkspaceSummary], frozen=True, kw_only=True):
    """A page of workspaces, by name."""

    workspaces: list[WorkspaceSummary]


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and the numbers of its sessions and current memories in a workspace.

    `memories` includes facts, notes, and the agent's memories in the account, which apply in every workspace.
    """

    name: str
    sessions: int
    memories: int


class AgentList(ListResult[AgentSummary], frozen=True, kw_only=True):
    """A page of agents, by name."""

    agents: list[AgentSummary]


# The coding agents whose hooks Reverie understands.
CodingAgent: TypeAlias = Literal["claude-code", "codex", "gemini", "cursor"]


class HookContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What Claude Code, Codex and Gemini CLI add to a session that starts."""

    hook_event_name: str
    additional_context: str


class HookOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a hook prints, in the form of its coding agent: empty unless a session starts and there is a context."""

    hook_specific_output: HookContext | None = msgspec.field(name="hookSpecificOutput", default=None)
    # Cursor's form of the same.
    additional_context: str | None = None
