"""The Typer application and what is common to all commands: data folder, workspace, agent, settings read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reverie import __version__
from reverie.checks import check_agent, check_workspace
from worker.settings import Settings, load_settings

if TYPE_CHECKING:
    from worker.runtime import Runtime

application = typer.Typer(
    name="reverie",
    help="Memory that works while the agent rests.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@dataclass
class Invocation:
    """One run of the command line: its flags, and what follows from them when first needed."""

    flags: dict[str, Any]
    agent_name: str

    @cached_property
    def settings(self) -> Settings:
        """The settings, with the flags on top."""
        settings = load_settings(**self.flags)
        check_workspace(settings.workspace)
        return settings

    @cached_property
    def agent(self) -> str:
        """The agent whose memories a command is about."""
        return check_agent(self.agent_name)

    @cached_property
    def runtime(self) -> Runtime:
        """The stores and the broker, opened here and now: for commands that work on the data folder itself."""
        from worker.logs import log_to_standard_error
        from worker.runtime import Runtime

        log_to_standard_error()
        return Runtime(self.settings)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reverie {__version__}")
        raise typer.Exit


@application.callback()
def _common(
    context: typer.Context,
    data: Annotated[
        Path | None, typer.Option(help="The folder that holds everything.", show_default=".reverie")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="The workspace.", show_default="default")] = None,
    agent: Annotated[str, typer.Option(help="Whose memories.", envvar="REVERIE_AGENT")] = "default",
    broker: Annotated[str | None, typer.Option(help="URL of a broker; else the embedded one.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Memory that works while the agent rests."""
    del version  # answered before anything else
    context.obj = Invocation({"data": data, "workspace": workspace, "broker": broker}, agent)


def invocation(context: typer.Context) -> Invocation:
    """The invocation that a command belongs to."""
    found = context.obj
    assert isinstance(found, Invocation)
    return found
