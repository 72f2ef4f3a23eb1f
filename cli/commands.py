"""The table of commands, and the group that imports the modules of a command only when it is used.

Importing all of them takes longer than a command does. The help of each stands here, too, so that `reverie --help`
imports none; a test holds it to the command's own.
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
    """A command or group of commands: the modules that define it, below `cli`, and the first line of its help."""

    modules: tuple[str, ...]
    help: str


COMMANDS: Final = {
    "up": Entry(("stack",), "Run everything until Ctrl-C: broker, workers, beat and HTTP server."),
    "status": Entry(("pipeline.status",), "Show the state of the pipeline: backlog, workers, jobs and latency."),
    "ingest": Entry(
        ("pipeline.ingest",),
        "Hand over messages: a JSON list, one message per line, or conversations with `session` and `messages`.",
    ),
    "recall": Entry(("recall.recall",), "Recall messages, files and memories that fit a query, best first."),
    "context": Entry(("recall.context",), "Show what an agent should know before it answers in a session."),
    "mcp": Entry(("mcp",), "Give an MCP client (Claude Code, Cursor, Codex, ...) this memory, over standard input."),
    "memory": Entry(("memories.memories", "memories.transfer"), "List, search and change what an agent knows."),
    "facts": Entry(("memories.facts",), "Keep one current value for each category and key."),
    "notes": Entry(("memories.notes",), "Keep notes, each under its own id."),
    "items": Entry(("items.items",), "Keep JSON values under a namespace and a key."),
    "files": Entry(("pipeline.files",), "Hand over, list and delete text files."),
    "sessions": Entry(
        ("sessions.sessions", "sessions.lifecycle", "sessions.summaries"), "List, search, restore and delete sessions."
    ),
    "channels": Entry(("sessions.channels",), "Group sessions and memories by channel."),
    "scratchpads": Entry(("sessions.scratchpads",), "Show and change the working notes of a session."),
    "schedules": Entry(
        ("scheduling.schedules", "scheduling.lifecycle", "scheduling.runs"), "Run goals once at a time, or repeatedly."
    ),
    "reminders": Entry(("scheduling.reminders",), "Deliver a message once, at a time."),
    "notifications": Entry(("scheduling.notifications",), "List and acknowledge what schedules report."),
    "recalls": Entry(
        ("recall.events",),
        "List what the agent's recalls found, newest first, and how often.",
    ),
    "curation": Entry(("upkeep.curation",), "List and undo what jobs changed."),
    "promotions": Entry(
        ("upkeep.notebooks",), "List what dream sweeps promoted, newest first, with the current content of each memory."
    ),
    "checkpoint": Entry(("upkeep.notebooks",), "Commit the agent's memory files as they are now."),
    "history": Entry(("upkeep.notebooks",), "List the commits of the agent's memory files, newest first."),
    "diff": Entry(("upkeep.notebooks",), "Show the difference between two commits of the agent's memory files."),
    "jobs": Entry(("upkeep.jobs",), "List the periodic jobs with their last runs; `reverie run` runs one now."),
    "run": Entry(
        ("upkeep.jobs",),
        "Run a periodic job now, in this process: of all agents, unless --agent or --workspace is given.",
    ),
    "agents": Entry(("sessions.workspaces",), "List the agents of a workspace."),
    "workspaces": Entry(("sessions.workspaces",), "List the workspaces."),
    "forget": Entry(
        ("trust.forget",),
        "Erase a user, session, message, memory, agent or workspace with every trace, and print the receipt.",
    ),
    "connect": Entry(
        ("sessions.connect",),
        "Give a coding agent on this machine its memory: an MCP server, and hooks that hand over what happens.",
    ),
    "export": Entry(
        ("trust.exports",), "Write everything about a user, an agent or a workspace to one file, with ids and times."
    ),
    "import": Entry(
        ("trust.exports",),
        "Store what is in an export, or in the history of another program, and not there yet, with ids and times.",
    ),
    "dead-letters": Entry(("pipeline.dead_letters",), "List, replay and drop work that failed for good."),
    "tokens": Entry(("trust.tokens",), "Create, list, rotate and revoke tokens."),
    "audit": Entry(("trust.audit",), "List the audit log, newest first: token changes, deletions, exports, refusals."),
    "quotas": Entry(("trust.quotas",), "Show and set how much workspaces and tenants may hold."),
    "db": Entry(
        ("upkeep.database", "upkeep.hosts", "upkeep.tombstones", "upkeep.reembed", "upkeep.copying"),
        "Check, rebuild and delete the databases.",
    ),
    "backup": Entry(("upkeep.backups",), "Back up everything while it runs, and list, verify and prune backups."),
    "restore": Entry(("upkeep.restoring",), "Restore a backup to the data folder, which must not be in use."),
    "doctor": Entry(
        ("pipeline.doctor",),
        "Check everything that can be wrong on this machine, and say what to do; exit code 1 for a problem.",
    ),
    "health": Entry(("pipeline.health",), "Check the health of a process (exit code 0 means healthy)."),
    "broker-url": Entry(("broker",), "Print the URL of the broker: `export REVERIE_BROKER=$(reverie broker-url)`."),
    "worker": Entry(
        ("stack",),
        "Run a worker that takes tasks from queues, on any host that reaches the broker and the data folder.",
    ),
    "beat": Entry(("stack",), "Run the scheduler that sends periodic jobs."),
    "serve": Entry(("stack",), "Run the HTTP server."),
}


def import_command(name: str) -> None:
    """Import the modules of a command, which register it with the application."""
    for module in COMMANDS[name].modules:
        import_module(f"cli.{module}")


def limited_to(application: typer.Typer, *names: str) -> typer.Typer:
    """Return the application with the commands of these names only. Building each of them takes time."""
    limited = copy.copy(application)
    limited.registered_groups = [group for group in application.registered_groups if group.name in names]
    limited.registered_commands = [
        command
        for command in application.registered_commands
        if (command.name or typer.main.get_command_name(command.callback.__name__ if command.callback else "")) in names
    ]
    return limited


class LazyGroup(typer.core.TyperGroup):
    """The root of all commands. It knows their names and help from the table, and imports a command when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported now; None if there is none of this name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        import_command(cmd_name)
        from cli.application import application
        from cli.common_options import add_common_options

        # Built anew: another module may have imported one of a group's modules before, but not the others.
        built: Any = typer.main.get_command(limited_to(application, cmd_name))
        command = built.commands[cmd_name]
        add_common_options(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name. Raises the usage error for an unknown one, with the nearest."""
        if args and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and help of all commands, without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])
