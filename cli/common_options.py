"""The common options, given after a command: each overrides the flag before the command."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer
import typer.main


def _option(name: str, help_text: str) -> Any:
    def override(context: typer.Context, value: str | None) -> None:
        if value is not None:
            context.find_root().obj.override(name, value)

    return typer.Option(f"--{name}", help=help_text, callback=override, expose_value=False)


_carrier = typer.Typer(add_completion=False)


@_carrier.command()
def _command(
    data: Annotated[str | None, _option("data", "The data folder.")] = None,
    workspace: Annotated[str | None, _option("workspace", "The workspace.")] = None,
    agent: Annotated[str | None, _option("agent", "The agent.")] = None,
    broker: Annotated[str | None, _option("broker", "The URL of a broker.")] = None,
) -> None:
    """Carry the options, from which Typer makes those that are added to the commands."""


def add_common_options(command: Any) -> None:
    """Let a command, or each command of a group, take the common options that are no options of its own."""
    if hasattr(command, "commands"):
        for inner in command.commands.values():
            add_common_options(inner)
        if not command.invoke_without_command:
            return
    taken = {name for parameter in command.params for name in parameter.opts}
    command.params += [option for option in _options() if option.opts[0] not in taken]


@cache
def _options() -> list[Any]:
    return list(typer.main.get_command(_carrier).params)
