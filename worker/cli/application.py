"""The Typer application and what is common to all commands: data folder, workspace, agent, settings read once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reverie import __version__
from reverie.checks import check_agent, check_workspace
from worker.data_folder import find_data_folder, nearest_data_folder, url_of_running_stack
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
    # A command that starts a stack does not take over the folder of one that runs elsewhere.
    starts_stack: bool = False

    @cached_property
    def settings(self) -> Settings:
        """The settings with the flags on top, and the data folder that is found from where the user stands."""
        settings = load_settings(**self.flags)
        if "data" not in settings.model_fields_set:
            folder = nearest_data_folder(Path.cwd()) if self.starts_stack else find_data_folder(Path.cwd())
            if folder is not None:
                settings = load_settings(**{**self.flags, "data": folder})
        check_workspace(settings.workspace)
        return settings

    @property
    def server_url(self) -> str:
        """The URL of the server to ask: the one named by REVERIE_URL, or that runs on the data folder."""
        from worker.cli.stack import local_url

        return os.environ.get("REVERIE_URL") or url_of_running_stack(self.settings.data) or local_url(self.settings)

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
        Path | None,
        typer.Option(
            help="The data folder. Default: the nearest .reverie upwards, then that of a running Reverie.",
            show_default=".reverie",
        ),
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
