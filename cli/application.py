"""The Typer application, which imports a command when it is used, and the invocation that every command gets.

An invocation has the agent, the settings, and a way to send calls.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
import typer.main
from typer.exceptions import TyperException

from cli.commands import COMMANDS, PANELS, CommandGroup, import_command, limited_to, name_types
from cli.target import Sender, Target
from reverie import __version__, contract
from reverie.calls import Call
from reverie.checks import check_agent, check_workspace
from reverie.counts import counted
from reverie.errors import NotFound
from reverie.fields import MAX_PAGE
from reverie.pipeline.calls import GetStatus
from reverie.sessions.calls import ListAgents

if TYPE_CHECKING:
    from reverie.pipeline.status import PipelineStatus
    from reverie.sessions.types import AgentSummary
    from worker.runtime import Runtime
    from worker.settings import Settings

_A = TypeVar("_A")

_AGENTS_SHOWN: Final = 5
# The flags that override settings.
_SETTINGS: Final = ("data", "workspace", "broker", "host", "port", "open")

# Texts of the library's errors, and what to print instead.
_PLAIN: Final = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "it is not a whole number",
    "Input should be a valid number, unable to parse string as a number": "it is not a number",
}
# An option of one letter, which Reverie does not have, or one with a blank.
_TEXT_WITH_DASH: Final = re.compile(r"(No such option: (?:-[^-]?|--[^ ]{0,99} .{0,99}))", re.DOTALL)


def _plain(message: str, command: Any) -> str:
    for words, plain in _PLAIN.items():
        message = message.replace(words, plain)
    if not any(parameter.param_type_name == "argument" for parameter in getattr(command, "params", ())):
        return message
    if option := _TEXT_WITH_DASH.fullmatch(message):
        return f"{option[1].rstrip()}; write -- before a text that begins with a dash"
    is_extra = message.startswith("Got unexpected extra argument")
    return f"{message}: a text with blanks needs quotes around it" if is_extra else message


class LazyGroup(CommandGroup):
    """The root of all commands. It knows their names and help from the table, and imports a command when it is used."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A usage error says what to do, where the library's own text does not."""
        try:
            return super().invoke(ctx)
        except TyperException as error:
            context = getattr(error, "ctx", None)
            error.message = _plain(getattr(error, "message", ""), context and context.command)
            raise

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
        from cli.options import add_common_options

        built: Any = typer.main.get_command(limited_to(application, cmd_name))
        command = built.commands[cmd_name]
        add_common_options(command)
        name_types(command)
        return command

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of `reverie` itself."""
        name_types(self)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and help of all commands, without importing any."""
        del ctx
        for panel, entries in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])


application = typer.Typer(
    cls=LazyGroup,
    name="reverie",
    help="A memory pipeline for AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@dataclass
class Invocation:
    """One run of the command line: its flags, and what follows from them, made on first use."""

    flags: dict[str, Any]
    # A command that starts a stack must not take the data folder of a stack that already runs elsewhere.
    starts_stack: bool = False
    _closing: ExitStack = field(default_factory=ExitStack)

    def override(self, name: str, value: Any) -> None:
        """Set a flag that was given after the command."""
        self.flags[name] = value

    @cached_property
    def target(self) -> Target:
        """Which Reverie the command is for."""
        return Target(self.flags, look_elsewhere=not self.starts_stack)

    @cached_property
    def settings(self) -> Settings:
        """The settings, overridden by the flags, with the data folder found from the current directory.

        Loading them takes longer than a call to the server, which needs none of them.
        """
        from worker.settings import load_settings

        folder = self.target.data
        flags = {name: self.flags.get(name) for name in _SETTINGS}
        settings = load_settings(**flags if folder is None else {**flags, "data": folder})
        check_workspace(settings.workspace)
        return settings

    @cached_property
    def agent(self) -> str:
        """The agent that the command works on."""
        flag = self.flags.get("agent")
        # An empty name, as of a variable that is not set, must not mean another agent.
        return check_agent(flag if flag is not None else os.environ.get("REVERIE_AGENT") or contract.DEFAULT_AGENT)

    @property
    def names_agent(self) -> bool:
        """Whether a flag or the environment names the agent. If neither does, it is the default agent."""
        return self.flags.get("agent") is not None or bool(os.environ.get("REVERIE_AGENT"))

    @property
    def workspace(self) -> str:
        """The workspace that the command works on."""
        return self.target.workspace

    @cached_property
    def _sender(self) -> Sender:
        sender = Sender(self.target, lambda: self.runtime, agent=self.agent, agent_named=self.names_agent)
        self._closing.callback(sender.close)
        return sender

    def send(self, call: Call[_A]) -> _A:
        """Send a call to the running server; where none runs, answer it from the files of the data folder.

        Raises what the server raises, `NotFound` where there is no data folder, and `Unavailable`.
        """
        return self._sender.send(call)

    def pipeline_status(self) -> PipelineStatus:
        """Return the status of the pipeline: from the running server, else read in this process; raises as `send`."""
        if self.target.url is not None or self.target.is_starting:
            return self.send(GetStatus())
        self.target.existing_data()
        from worker.status import read_status_once

        return read_status_once(self.settings)

    def answer(self, call: Call[_A], *, workspace: str | None = None) -> _A:
        """Answer a call in this process, on the data folder, also where a server runs; raises as `send`.

        It is about the workspace of the command unless it is given another.
        """
        return self._sender.answer(call, workspace=workspace)

    @cached_property
    def runtime(self) -> Runtime:
        """The stores and the broker, for commands that open the data folder themselves."""
        from worker.logs import log_to_standard_error
        from worker.runtime import Runtime

        log_to_standard_error()
        return Runtime(self.settings)

    @property
    def existing_runtime(self) -> Runtime:
        """The runtime on an existing data folder. Raises `NotFound` if there is none, and does not create it.

        Settings that do not fit together are named first, with `Rejected`.
        """
        runtime = self.runtime
        self.target.existing_data()
        return runtime

    def close(self) -> None:
        """Close what the command has opened."""
        self._closing.close()

    def missing(self, name: str, id: object) -> NotFound:
        """Return the error for something that the agent does not have."""
        return NotFound(f"agent {self.agent} has no {name} {id!r}", field="id")

    def none_of(self, names: str, call: Call[Any]) -> str:
        """Return the text shown for an empty list; it says whether users or other agents have some.

        Other agents are not named if this one has data itself, or if the call selects or skips items.
        """
        if _selects(call):
            return f"Agent {self.agent} has no such {names} in workspace {self.workspace}."
        text = f"Agent {self.agent} has no {names} in workspace {self.workspace}."
        agents = self.send(ListAgents(limit=MAX_PAGE)).agents
        own = next((one for one in agents if one.name == self.agent), None)
        if own is not None and (held := getattr(own, names, 0)):
            text += f" Its users have {held}: name one with --user."
        if agents and own is None:
            text += " Others have: " + ", ".join(map(_of_agent, agents[:_AGENTS_SHOWN])) + " (--agent NAME)."
        return text


def _selects(call: Call[Any]) -> bool:
    """Return whether a call for a list selects or skips items. Flags do not count: each makes the list longer."""
    values = (getattr(call, name) for name in call.__struct_fields__ if name != "limit")
    return any(value and value is not True for value in values)


def _of_agent(agent: AgentSummary) -> str:
    return f"{agent.name} has {counted(agent.sessions, 'session')} and {counted(agent.memories, 'memory')}"


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"reverie {__version__}")
        raise typer.Exit


@application.callback()
def _common(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data folder. Default: the nearest .reverie here or above, else that of a running Reverie, else"
            " ~/.local/share/reverie.",
            readable=False,  # a folder without rights has an error of its own, in one line
        ),
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(help="The workspace. Default: REVERIE_WORKSPACE, or `default`.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The agent. Default: REVERIE_AGENT, or `default`.")] = None,
    broker: Annotated[str | None, typer.Option(help="The URL of a broker. Default: the embedded one.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A memory pipeline for AI agents."""
    del version  # handled by its callback
    current = Invocation({"data": data, "workspace": workspace, "agent": agent, "broker": broker})
    context.obj = current
    context.call_on_close(current.close)


def invocation(context: typer.Context) -> Invocation:
    """Return the invocation that a command belongs to."""
    current = context.obj
    assert isinstance(current, Invocation)
    return current
