"""`reverie connect`: give a coding agent on this machine its memory, and take it away again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from adapters.coding_agents.files import (
    HOOK_SCRIPT,
    Change,
    Connection,
    Tool,
    changes_for,
    cursor_link,
)
from cli.application import Invocation
from cli.groups import root
from cli.output import AsJson, note, print_json, print_result, say
from reverie import contract
from reverie.config import state_folder
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.sessions.types import CodingAgent

_NEXT: Final = {
    "claude-code": "Restart Claude Code. `/mcp` and `/hooks` there show what was added.",
    "codex": "Restart Codex, and trust the hooks there with `/hooks`: until then it does not run them.",
    "cursor": "Restart Cursor. Its settings show the server under MCP, and the hooks under Hooks.",
    "gemini": "Restart Gemini CLI. `/mcp` and `/hooks` there show what was added.",
}


class Connected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files and entries that the command wrote or removed for one coding agent."""

    tool: CodingAgent
    files: list[str]
    entries: list[dict[str, Any]] = []
    install_link: str | None = None


@root.command("connect")
def connect(
    command: Invocation,
    tool: Annotated[CodingAgent, typer.Argument(help="claude-code, codex, gemini or cursor.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove what was written.")] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks/--no-hooks", help="Also add hooks that store what is said there.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give a coding agent on this machine its memory: an MCP server, and hooks that hand over what happens.

    The entries go into the tool's own configuration files, of which a copy is kept beside them; everything else in them
    stays as it is. What is handed over belongs to the agent and the workspace of this command. docs/coding-agents.md
    says what is sent.
    """
    from adapters.coding_agents import files

    connection = _connection(command)
    changes = changes_for(tool, _homes(), connection, hooks=hooks or remove)
    if remove:
        changed = files.remove(changes, _known().get(tool, []))
        _remember(tool, [])
        _mark(tool, connected=False)
        _print_removed(Connected(tool=tool, files=[*map(str, changed)]), as_json)
        return
    texts = files.planned(changes, tool)
    if not dry_run:
        known = _known().get(tool, [])
        if hooks:
            _write_script(connection.script)
        written = files.write(texts, changes, known)
        _mark(tool, connected=hooks)
        _remember(tool, [*(one for one in known if one.file not in {new.file for new in written}), *written])
    done = Connected(
        tool=tool,
        files=[*map(str, texts)],
        entries=[_entry(change) for change in changes if change.file in texts],
        install_link=cursor_link(connection) if tool == "cursor" else None,
    )
    _print_connected(done, dry_run, as_json)
    if hooks and shutil.which("curl") is None:
        note("reverie: there is no curl, which the hooks need: install it, or leave them out with --no-hooks")


def _connection(command: Invocation) -> Connection:
    """Return how a tool that is started anywhere reaches the Reverie of this command."""
    arguments, environment = list[str](), dict[str, str]()
    target = command.target
    if target.is_remote and target.url is not None:
        environment["REVERIE_URL"] = target.url
    elif target.data is not None:
        arguments += ["--data", str(target.data.resolve())]
        if target.url is not None and target.url != contract.DEFAULT_URL:
            environment["REVERIE_URL"] = target.url
    if command.agent != contract.DEFAULT_AGENT:
        arguments += ["--agent", command.agent]
        environment["REVERIE_AGENT"] = command.agent
    if command.workspace != contract.DEFAULT_WORKSPACE:
        arguments += ["--workspace", command.workspace]
        environment["REVERIE_WORKSPACE"] = command.workspace
    return Connection(
        command=_program(),
        arguments=(*arguments, "mcp"),
        script=state_folder() / HOOK_SCRIPT,
        environment=environment,
        remote=target.url if target.is_remote else None,
    )


def _program() -> str:
    """Return the path of this command: a tool does not have the path of this shell."""
    beside = Path(sys.executable).with_name("reverie")
    found = str(beside) if beside.exists() else shutil.which("reverie")
    if found is None:
        raise Rejected("the command reverie was not found: install Reverie, or activate its environment first")
    return found


def _homes() -> dict[Tool, Path]:
    """Return the folders in which the tools keep their configuration."""
    home = Path.home()
    return {
        "claude-code": Path(os.environ.get("CLAUDE_CONFIG_DIR") or home / ".claude"),
        "codex": Path(os.environ.get("CODEX_HOME") or home / ".codex"),
        "cursor": home / ".cursor",
        "gemini": home / ".gemini",
    }


def _write_script(path: Path) -> None:
    """Put the hook script where it stays, whatever becomes of this environment."""
    from adapters import coding_agents
    from storage.private_files import write_private

    source = Path(coding_agents.__file__).with_name(HOOK_SCRIPT)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, source.read_bytes())


def _records() -> Path:
    return state_folder() / "connections.json"


def _known() -> dict[str, list[Any]]:
    """Return the earlier writes by tool. Empty if the record is missing or damaged; then removal is less exact."""
    from adapters.coding_agents.files import Written
    from storage.private_files import read_json

    return read_json(_records(), dict[str, list[Written]]) or {}


def _remember(tool: str, written: list[Any]) -> None:
    from storage.private_files import write_private

    known = {name: records for name, records in {**_known(), tool: written}.items() if records}
    path = _records()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if known:
        write_private(path, msgspec.json.format(msgspec.json.encode(known), indent=2))
    else:
        path.unlink(missing_ok=True)
        (state_folder() / HOOK_SCRIPT).unlink(missing_ok=True)


def _mark(tool: str, *, connected: bool) -> None:
    """Tell a plugin's hooks whether the hooks of this command already hand over the events."""
    mark = state_folder() / "connected" / tool
    if connected:
        mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def _entry(change: Change) -> dict[str, Any]:
    return {"file": str(change.file), "key": ".".join(change.keys), "value": change.value}


def _print_connected(done: Connected, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    if not done.files:
        say(f"{done.tool} is connected already: nothing was changed.")
    for file in done.files:
        say(f"{file} {'would get' if dry_run else 'got'}:")
        for entry in done.entries:
            if entry["file"] == file:
                say(f"  {entry['key']} = {msgspec.json.encode(entry['value']).decode()}")
    if done.install_link is not None:
        say(f"Or let Cursor add the server itself: {done.install_link}")
    if done.files and not dry_run:
        say(_NEXT[done.tool])


def _print_removed(done: Connected, as_json: bool) -> None:
    text = f"{done.tool} is not connected: nothing was changed."
    if done.files:
        text = f"Removed from {counted(len(done.files), 'file')}: {', '.join(done.files)}. Restart the tool."
    print_result(done, as_json, text)
