"""Write `docs/cli.md` from the commands themselves: `python -m cli.docs [--check] FILE`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

import typer.main

from cli.application import application
from cli.commands import COMMANDS, import_command
from worker.settings_docs import write_or_check

_HEAD: Final = """\
<!-- Written by `make docs` from cli/: change the help of the commands there. -->
# The command line

`reverie` is installed into `.venv/bin`. Every command with output prints JSON with `--json`; long operations show a
progress bar on a terminal. The exit code is 0 for success, 1 for a failure, 2 for a wrong command or invalid input,
and 130 after Ctrl-C. An error is one line on standard error that says what to do; for a wrong option or a missing
argument, the usage of the command is shown as well. `reverie --install-completion` lets the shell complete commands and
options.

A command sends its call to the server that runs on the data folder, and finds both from any folder: `--data`, else
`REVERIE_DATA` or `reverie.toml`, else the nearest `.reverie` upwards, else the folder of the Reverie that runs on this
machine, else the user's own (`~/.local/share/reverie`). `REVERIE_URL` names a server anywhere. Where no server runs,
the command opens the files of the data folder itself, and says so on standard error; reading creates nothing. `ingest`
and `files add` need a Reverie that runs.
`run`, `db` and `health` always work on the data folder and the broker.

"""


def page() -> str:
    """Return the whole page as Markdown."""
    root = _root()
    parts = [
        _HEAD,
        "## Options of every command\n\n",
        "They stand before the command or after it: `reverie recall ... --agent ana`.\n\n",
    ]
    parts.append(_parameters(root))
    for path, command in commands():
        parts.append(f"## {' '.join(path)}\n\n{_help(command)}\n\n```\n{_usage(path, command)}\n```\n\n")
        parts.append(_parameters(command))
    return "".join(parts).rstrip() + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its full name, sorted by name."""
    yield from sorted(_walk(("reverie",), _root()), key=lambda found: found[0])


def _root() -> Any:
    for name in COMMANDS:
        import_command(name)
    # The commands as they are declared, without the common options, which have a table of their own.
    return typer.main.get_command(application)


def _walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    if command.invoke_without_command and len(path) > 1:
        yield path, command
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
    """Return a table of arguments and options, without those for shell completion."""
    shown = [p for p in command.params if p.name not in ("install_completion", "show_completion", "help")]
    if not any(getattr(parameter, "help", None) for parameter in shown):
        return ""
    rows = "".join(f"| {_names(p)} | {_cell(p)} | {_default(p)} |\n" for p in shown)
    return f"| option | description | default |\n| --- | --- | --- |\n{rows}\n"


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
    """Write or check the page; return the exit code."""
    return write_or_check(page(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
