"""What `reverie connect` writes for each coding agent: an MCP server, and hooks that hand over what happens."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

NAME: Final = "reverie"
HOOK_SCRIPT: Final = "reverie-hook.sh"

Tool = Literal["claude-code", "codex", "cursor", "gemini"]

# How long a tool waits for a hook at most, should something go wrong; the hook's own deadlines are far shorter.
_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A member of a configuration file, or an item of a list in it."""

    file: Path
    keys: tuple[str, ...]
    value: Any
    kind: Literal["member", "item", "table"] = "member"


@dataclass(frozen=True, slots=True)
class Connection:
    """How a coding agent reaches Reverie: the command of its MCP server, and the hook script with its environment.

    `remote` is the URL of a server elsewhere. The token for it is not written: the tool's environment has it.
    """

    command: str
    arguments: tuple[str, ...]
    script: Path
    environment: Mapping[str, str]
    remote: str | None = None

    @property
    def server(self) -> dict[str, Any]:
        """The MCP server as configuration files name it."""
        server: dict[str, Any] = {"command": self.command, "args": [*self.arguments]}
        return server if self.remote is None else {**server, "env": {"REVERIE_URL": self.remote}}

    def hook(self, tool: Tool, *, starts: bool) -> str:
        """Return the command of a hook."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        words = ["sh", shlex.quote(str(self.script)), tool, *(["start"] if starts else [])]
        return " ".join([*variables, *words])


def changes_for(tool: Tool, homes: Mapping[Tool, Path], connection: Connection, *, hooks: bool) -> list[Change]:
    """Return what is written for a tool, whose files are in its folder of `homes`."""
    home = homes[tool]
    if tool == "codex":
        server = Change(home / "config.toml", ("mcp_servers", NAME), connection.server, "table")
    elif tool == "claude-code":
        # Its state, with the MCP servers of the user, lies beside the folder, or in it if that has been moved.
        inside = home / ".claude.json"
        file = inside if home.name != ".claude" else home.parent / ".claude.json"
        server = Change(file, ("mcpServers", NAME), {"type": "stdio", **connection.server})
    else:
        file = home / ("mcp.json" if tool == "cursor" else "settings.json")
        server = Change(file, ("mcpServers", NAME), connection.server)
    return [server, *(_hooks(tool, home, connection) if hooks else [])]


def cursor_link(connection: Connection) -> str:
    """Return the link by which Cursor installs the MCP server."""
    config = base64.b64encode(json.dumps(connection.server).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={quote(config)}"


def is_own(value: Any) -> bool:
    """Return whether an entry is one of Reverie's: a hook by its script, a server by its command."""
    if isinstance(value, dict) and "command" in value and "mcp" in value.get("args", ()):
        return Path(str(value["command"])).stem == NAME
    return HOOK_SCRIPT in json.dumps(value)


def _hooks(tool: Tool, home: Path, connection: Connection) -> list[Change]:
    start, other = connection.hook(tool, starts=True), connection.hook(tool, starts=False)
    if tool == "cursor":
        file = home / "hooks.json"
        events = {"sessionStart": start} | dict.fromkeys(
            ("beforeSubmitPrompt", "postToolUse", "afterAgentResponse"), other
        )
        items = [Change(file, ("hooks", event), {"command": one}, "item") for event, one in events.items()]
        return [Change(file, ("version",), 1), *items]
    if tool == "gemini":
        file, seconds = home / "settings.json", _SECONDS * 1000  # milliseconds, here
        events = {"SessionStart": start} | dict.fromkeys(("BeforeAgent", "AfterTool", "AfterAgent"), other)
    else:
        file, seconds = home / ("hooks.json" if tool == "codex" else "settings.json"), _SECONDS
        events = {"SessionStart": start} | dict.fromkeys(("UserPromptSubmit", "PostToolUse", "Stop"), other)
    return [
        Change(
            file,
            ("hooks", event),
            {"hooks": [{"type": "command", "command": one, "timeout": seconds}]},
            "item",
        )
        for event, one in events.items()
    ]
