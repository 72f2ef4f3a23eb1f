"""The formats that `reverie import` reads, by the names that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its module, what it is, where its program keeps it if it keeps it in one place, and if it has hooks."""

    module: str
    description: str
    default: str | None = None
    has_hooks: bool = False

    def load(self) -> Any:
        """Import and return the module, which is a `History`."""
        return import_module(f"adapters.histories.{self.module}")


# By their names, so that a command imports the one that it needs.
FORMATS: Final[Mapping[str, Format]] = {
    "claude-code": Format("claude_code", "transcripts of Claude Code", "~/.claude/projects", has_hooks=True),
    "codex": Format("codex", "rollouts of Codex", "~/.codex/sessions", has_hooks=True),
    "chatgpt": Format("chatgpt", "an export of ChatGPT: conversations.json, or the archive with it"),
    "claude": Format("claude", "an export of Claude: conversations.json, or the archive or folder with it"),
    "mem0": Format("mem0", "memories of mem0: what get_all returned, saved as JSON, or history.db"),
    "mcp-memory": Format("mcp_memory", "the file of the reference MCP memory server"),
    "langgraph": Format("langgraph", "the database of LangGraph's SqliteStore"),
}
