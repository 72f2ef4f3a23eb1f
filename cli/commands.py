"""The table of commands, each with the module that has it, which is imported only when the command is used.

Importing all of them takes longer than a command does. The table repeats the help of each, so that `reverie --help`
imports none; a test checks that it is the same as the command's own.
"""

from __future__ import annotations

import copy
import difflib
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
import typer.core
import typer.main


class Entry(NamedTuple):
    """A command or group of commands: the module in `cli` to import for it, and the first line of its help."""

    module: str
    help: str


# By the panels of `reverie --help`.
PANELS: Final = {
    "Begin": {
        "demo": Entry(
            "demo",
            "Start everything, store a conversation, ask questions about it, stop; the data stays in ./.reverie.",
        ),
        "up": Entry("stack", "Run everything until Ctrl-C: broker, workers, beat and HTTP server."),
        "status": Entry("status", "Show the state of the pipeline: backlog, workers, jobs and latency."),
        "doctor": Entry(
            "doctor",
            "Check everything that can be wrong on this machine, and say what to do; exit code 1 for a problem.",
        ),
        "connect": Entry(
            "connect",
            "Give a coding agent on this machine its memory: an MCP server, and hooks that hand over what happens.",
        ),
        "mcp": Entry("mcp", "Give an MCP client (Claude Code, Cursor, Codex, ...) this memory, over standard input."),
    },
    "Messages, files and recall": {
        "ingest": Entry(
            "pipeline",
            "Hand over messages: a JSON list, one message per line, or conversations with `session` and `messages`.",
        ),
        "files": Entry("pipeline", "Hand over, list and delete text files."),
        "recall": Entry("recall", "Recall messages, files and memories that fit a query, best first."),
        "context": Entry("recall", "Show what an agent should know before it answers."),
        "recalls": Entry("recall", "List what the agent's recalls found, newest first, and how often."),
        "contexts": Entry("recall", "List and show what contexts told the agent, and why."),
    },
    "What an agent knows": {
        "memory": Entry("memories", "List, search and change what an agent knows."),
        "facts": Entry("memories", "Keep one current value for each category and key."),
        "notes": Entry("memories", "Keep notes, each under its own id."),
        "items": Entry("items", "Keep JSON values under a namespace and a key."),
    },
    "Conversations": {
        "sessions": Entry("sessions", "List, search, restore and delete sessions."),
        "channels": Entry("sessions", "Group sessions and memories by channel."),
        "scratchpads": Entry("sessions", "Show and change the working notes of a session."),
    },
    "Times": {
        "schedules": Entry("scheduling", "Run goals once at a time, or repeatedly."),
        "reminders": Entry("scheduling", "Deliver a message once, at a time."),
        "notifications": Entry("scheduling", "List and acknowledge what schedules report."),
    },
    "What jobs do": {
        "jobs": Entry("upkeep", "List the periodic jobs with their last runs; `reverie run` runs one now."),
        "run": Entry(
            "upkeep", "Run a periodic job now, in this process: of all agents, unless --agent or --workspace is given."
        ),
        "curation": Entry("upkeep", "List and undo what jobs changed."),
        "promotions": Entry(
            "upkeep", "List what dream sweeps promoted, newest first, with the current content of each memory."
        ),
        "checkpoint": Entry("upkeep", "Commit the agent's memory files as they are now."),
        "history": Entry("upkeep", "List the commits of the agent's memory files, newest first."),
        "diff": Entry("upkeep", "Show the difference between two commits of the agent's memory files."),
    },
    "Administration": {
        "agents": Entry("sessions", "List the agents of a workspace."),
        "workspaces": Entry("sessions", "List the workspaces."),
        "tokens": Entry("trust", "Create, list, rotate and revoke tokens."),
        "quotas": Entry("trust", "Show and set how much workspaces and tenants may hold."),
        "audit": Entry("trust", "List the audit log, newest first: token changes, deletions, exports, refusals."),
        "forget": Entry(
            "lifecycle.forget",
            "Erase a user, session, message, memory, agent or workspace with every trace, and print the receipt.",
        ),
        "export": Entry(
            "lifecycle.exports",
            "Write everything about a user, an agent or a workspace to one file, with ids and times.",
        ),
        "import": Entry(
            "lifecycle.exports",
            "Store what is in an export, or in the history of another program, and not there yet, with ids and times.",
        ),
        "evaluate": Entry(
            "lifecycle.evaluate", "Ask captured questions again in a copy, with a model, ranking or setting changed."
        ),
        "dead-letters": Entry("pipeline", "List, replay and drop work that failed for good."),
        "db": Entry("lifecycle.reembed", "Check, rebuild and delete the databases."),
        "backup": Entry("lifecycle.backups", "Back up everything while it runs, and list, verify and prune backups."),
        "restore": Entry("lifecycle.backups", "Restore a backup to the data folder, which must not be in use."),
    },
    "Single processes": {
        "worker": Entry(
            "stack",
            "Run a worker that takes tasks from queues, on any host that reaches the broker and the data folder.",
        ),
        "beat": Entry("stack", "Run the scheduler that sends periodic jobs."),
        "serve": Entry("stack", "Run the HTTP server."),
        "health": Entry("status", "Check the health of a process (exit code 0 means healthy)."),
        "broker-url": Entry("stack", "Print the URL of the broker: `export REVERIE_BROKER=$(reverie broker-url)`."),
    },
}
_TYPE_WORDS: Final = {"int": "NUMBER", "float": "NUMBER", "Path": "PATH"}  # else TEXT
# Synonyms: a person who types one means a command with the name of another, rather than one with similar letters.
_ALIKE: Final = (
    ("remove", "delete", "forget", "cancel", "drop", "revoke"),
    ("list", "ls", "all"),
    ("show", "get", "read", "list"),
    ("add", "create", "new", "set", "start"),
    ("update", "edit", "change", "set"),
    ("search", "find", "query"),
)
_LONGEST_HELP: Final = 400
COMMANDS: Final = {name: entry for panel in PANELS.values() for name, entry in panel.items()}


def import_command(name: str) -> None:
    """Import the module of a command, which registers it with the application."""
    import_module(f"cli.{COMMANDS[name].module}")


def limited_to(application: typer.Typer, *names: str) -> typer.Typer:
    """Return the application with only the named commands, since building each command takes time."""
    limited = copy.copy(application)
    limited.registered_groups = [group for group in application.registered_groups if group.name in names]
    limited.registered_commands = [
        command
        for command in application.registered_commands
        if (command.name or typer.main.get_command_name(command.callback.__name__ if command.callback else "")) in names
    ]
    return limited


def name_types(command: Any) -> None:
    """Let the help of a command or group name types in words, as SECONDS, and arguments in capitals."""
    for inner in getattr(command, "commands", {}).values():
        name_types(inner)
    for parameter in command.params:
        shown = parameter.bare_type()
        word = next((word for part, word in _TYPE_WORDS.items() if part in shown), "TEXT")
        if word == "NUMBER" and "seconds" in (parameter.help or "").lower():
            word = "SECONDS"
        parameter.display_type = lambda *_, word=word: word
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
            parameter.metavar = f"{name}..." if parameter.nargs != 1 and not name.endswith("...") else name
            usage = parameter.metavar if parameter.required else f"[{parameter.metavar}]"
            parameter.get_usage_pieces = lambda *_, usage=usage: [usage]


class CommandGroup(typer.core.TyperGroup):
    """A group of commands. Its help is not truncated, and for an unknown command it suggests the one that is meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name. Raises the usage error for an unknown one."""
        names = self.list_commands(ctx)
        if args and args[0] not in names:
            alike = next((words for words in _ALIKE if args[0] in words), ())
            options = [option for parameter in self.get_params(ctx) for option in parameter.opts]
            close = difflib.get_close_matches(args[0], [*names, *options], n=1)
            near = [name for name in alike if name in names] or close
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the commands, each with the first paragraph of its help."""
        with formatter.section("Commands"):
            commands: Any = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
            formatter.write_dl([(name, command.get_short_help_str(_LONGEST_HELP)) for name, command in commands])
