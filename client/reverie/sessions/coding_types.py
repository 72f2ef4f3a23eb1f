"""What the hooks of coding agents hand over, and what they get back."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

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
