"""The Typer application, and what every command needs: the settings, the agent, and the stores of the data folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reverie import __version__
from reverie.checks import check_agent, check_workspace
from reverie.errors import NotFound
from worker.data_folder import find_data_folder, nearest_data_folder, url_of_running_stack
from worker.settings import Settings, load_settings

if TYPE_CHECKING:
    from memory.memories.agent_memories import AgentMemories
    from storage.stores import Store
    from worker.runtime import Runtime

application = typer.Typer(
    name="reverie",
    help="A memory pipeline for AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@dataclass
class Invocation:
    """One run of the command line: its flags, and the settings and stores that follow from them, made on first use."""

    flags: dict[str, Any]
    agent_name: str
    # A command that starts a stack must not take the data folder of a stack that already runs elsewhere.
    starts_stack: bool = False

    @cached_property
    def settings(self) -> Settings:
        """The settings, overridden by the flags, with the data folder found from the current directory."""
        settings = load_settings(**self.flags)
        if "data" not in settings.model_fields_set:
            folder = nearest_data_folder(Path.cwd()) if self.starts_stack else find_data_folder(Path.cwd())
            if folder is not None:
                settings = load_settings(**{**self.flags, "data": folder})
        check_workspace(settings.workspace)
        return settings

    @property
    def server_url(self) -> str:
        """The URL of the server: REVERIE_URL, or the server that runs on the data folder."""
        from cli.stack import local_url

        return os.environ.get("REVERIE_URL") or url_of_running_stack(self.settings.data) or local_url(self.settings)

    @cached_property
    def agent(self) -> str:
        """The agent that the command works on."""
        return check_agent(self.agent_name)

    @cached_property
    def runtime(self) -> Runtime:
        """The stores and the broker, for commands that open the data folder themselves."""
        from worker.logs import log_to_standard_error
        from worker.runtime import Runtime

        log_to_standard_error()
        return Runtime(self.settings)

    @property
    def store(self) -> Store:
        """The workspace's store. Raises `NotFound` when nothing has been stored in the workspace."""
        return self.runtime.stores.workspace(self.settings.workspace, create=False)

    @property
    def store_or_none(self) -> Store | None:
        """The workspace's store, or None when nothing has been stored in the workspace: reading does not create it."""
        try:
            return self.store
        except NotFound:
            return None

    @property
    def memories(self) -> AgentMemories:
        """The agent's memories in the workspace and the account."""
        from memory.memories.agent_memories import AgentMemories

        return AgentMemories(self.runtime.stores, self.settings.workspace, self.agent)

    def store_with(self, name: str, id: object, *, field: str = "id") -> Store:
        """Return the workspace's store, in which something is looked up by its id.

        Raises `NotFound` naming it when nothing has been stored in the workspace.
        """
        store = self.store_or_none
        if store is None:
            raise self.missing(name, id, field=field)
        return store

    def missing(self, name: str, id: object, *, field: str = "id") -> NotFound:
        """Return the error for something that the agent does not have."""
        return NotFound(f"agent {self.agent} has no {name} {id!r}", field=field)

    def none_of(self, names: str) -> str:
        """Return the text shown for an empty list."""
        return f"Agent {self.agent} has no such {names} in workspace {self.settings.workspace}."


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
            help="The data folder. Default: the nearest .reverie upwards, else that of a running Reverie.",
            show_default=".reverie",
        ),
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="The workspace.", show_default="default")] = None,
    agent: Annotated[str, typer.Option(help="The agent.", envvar="REVERIE_AGENT")] = "default",
    broker: Annotated[str | None, typer.Option(help="The URL of a broker. Default: the embedded one.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A memory pipeline for AI agents."""
    del version  # handled by its callback
    context.obj = Invocation({"data": data, "workspace": workspace, "broker": broker}, agent)


def invocation(context: typer.Context) -> Invocation:
    """Return the invocation that a command belongs to."""
    current = context.obj
    assert isinstance(current, Invocation)
    return current
