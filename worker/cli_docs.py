"""Write `docs/cli.md` from the commands themselves: `python -m worker.cli_docs [--check] FILE`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

import typer.main

from worker.cli import register_commands
from worker.cli.application import application
from worker.settings_docs import write_or_check

_HEAD: Final = """\
<!-- Written by `make docs` from worker/cli/: change the help of the commands there. -->
# The command line

`reverie` is installed into `.venv/bin`. Every command that prints something prints JSON with `--json`; what takes
long shows a progress bar on a terminal. The exit code is 0 when it is done, 1 when it failed, and 2 when the command
or its input was at fault; an error is one line on standard error that says what to do. A wrong option or a missing
argument is answered with the usage of the command as well.

Commands work on the data folder or the broker itself, whether `reverie up` runs or not. Those that say so ask the
running server (`recall`, `context`, `memory search`, `sessions search`), at `REVERIE_URL` or else on the port of the
settings, and `ingest` hands over to the running broker.

"""


def page() -> str:
    """The whole page as Markdown."""
    root = _root()
    parts = [
        _HEAD,
        "## Options of every command\n\nThey stand before the command: `reverie --agent ana recall ...`.\n\n",
    ]
    parts.append(_parameters(root))
    for path, command in commands():
        parts.append(f"## {' '.join(path)}\n\n{_help(command)}\n\n```\n{_usage(path, command)}\n```\n\n")
        parts.append(_parameters(command))
    return "".join(parts).rstrip() + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its full name, by name: the order of registration follows that of imports."""
    yield from sorted(_walk(("reverie",), _root()), key=lambda found: found[0])


def _root() -> Any:
    register_commands()
    return typer.main.get_command(application)


def _walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from _walk((*path, name), inner)


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _usage(path: tuple[str, ...], command: Any) -> str:
    arguments = [_argument(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    options = ["[OPTIONS]"] if any(p.param_type_name == "option" for p in command.params) else []
    return " ".join([*path, *options, *arguments])


def _argument(parameter: Any) -> str:
    name = str(parameter.name).upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _parameters(command: Any) -> str:
    """A table of arguments and options; those for completing in a shell stand in `--help` alone."""
    shown = [p for p in command.params if p.name not in ("install_completion", "show_completion", "help")]
    if not any(getattr(parameter, "help", None) for parameter in shown):
        return ""
    rows = "".join(f"| {_names(p)} | {_cell(p)} | {_default(p)} |\n" for p in shown)
    return f"| option | what | default |\n| --- | --- | --- |\n{rows}\n"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    value = "" if parameter.is_flag else " ..."
    return ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _cell(parameter: Any) -> str:
    return str(getattr(parameter, "help", None) or "").replace("|", "\\|")


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return f"`{shown}`"
    if parameter.param_type_name == "argument" or parameter.is_flag or parameter.default is None:
        return ""
    return f"`{parameter.default}`"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` tell whether the file is current; returns the exit code."""
    return write_or_check(page(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
