"""Makes `docs/cli.md` from the commands themselves."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import typer.main

from cli.application import application
from cli.commands import COMMANDS, import_command

_HEAD: Final = """\
<!-- Written by `make docs` from cli/: change the help of the commands there. -->
# The command line

`reverie` is installed into `.venv/bin`. Every command with output prints JSON with `--json`; long operations show a
progress bar. The exit code is 0 for success, 1 for a failure, 2 for a wrong command or invalid input,
and 130 after Ctrl-C. An error is one line on standard error that says what to do; for a wrong option or missing
argument, the usage of the command is shown as well. Below, what a command takes follows its help.
`reverie --install-completion` lets the shell complete commands and options.

A command sends its call to the server that runs on the data folder, and finds both from any folder: `--data`, else
`REVERIE_DATA` or `reverie.toml`, else the nearest `.reverie` upwards, else the folder of the Reverie that runs on this
machine, else the user's own (`~/.local/share/reverie`). `REVERIE_URL` names a server anywhere. Where no server runs,
the command opens the files of the data folder itself, and says so on standard error; reading creates nothing. `ingest`
and `files add` need a Reverie that runs.
`run`, `db` and `health` always work on the data folder and the broker, and so do `backup`, `restore` and
`schedules secret`.

"""


# An option that so many commands describe in the same words is described once, at the head of the page.
_SHARED_BY: Final = 3


def page() -> str:
    """Return the whole page as Markdown."""
    root = _root()
    shared = _shared()
    parts = [
        _HEAD,
        "## Options of every command\n\n",
        "They stand before the command or after it: `reverie recall ... --agent ana`.\n\n",
        *_described(_shown(root)),
        "\n## Options of several commands\n\n",
        "Where a command gives an option or an argument another meaning, its section says so.\n\n",
        *_described(shared.values()),
    ]
    for path, command in commands():
        own = [parameter for parameter in _shown(command) if _text(parameter) != _text(shared.get(_names(parameter)))]
        listed = [parameter for parameter in own if parameter.param_type_name == "option" and not parameter.required]
        arguments = _arguments(command, listed)
        parts.append(f"\n## {' '.join(path)}\n\n{_help(command)}\n")
        parts.append(f"\n`{arguments}`\n" if arguments else "")
        parts.extend(["\n", *_described(own)] if own else [])
    return "".join(parts)


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


def _arguments(command: Any, listed: list[Any]) -> str:
    """Return the arguments of a command, with the options that are not listed below it."""
    shown = [parameter for parameter in _shown(command) if parameter not in listed]
    shown.sort(key=lambda parameter: parameter.param_type_name != "argument")
    return " ".join(map(_in_usage, shown))


def _in_usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _argument(parameter)
    value = "" if parameter.is_flag else "=..."
    name = "|".join((*parameter.opts, *parameter.secondary_opts)) + value
    return name if parameter.required else f"[{name}]"


def _argument(parameter: Any) -> str:
    name = str(parameter.name).upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _shown(command: Any) -> list[Any]:
    """Return the arguments and options of a command, without `--json` and `--help`, which all of them have."""
    hidden = ("install_completion", "show_completion", "help")
    return [p for p in command.params if p.name not in hidden and "--json" not in p.opts]


def _shared() -> dict[str, Any]:
    """Return the parameters that at least `_SHARED_BY` commands describe in the same words, by their names."""
    parameters = [parameter for _, command in commands() for parameter in _shown(command)]
    uses = Counter((_names(parameter), _text(parameter)) for parameter in parameters)
    found: dict[str, Any] = {}
    for parameter in sorted(parameters, key=lambda p: -uses[_names(p), _text(p)]):
        if uses[_names(parameter), _text(parameter)] >= _SHARED_BY:
            found.setdefault(_names(parameter), parameter)
    return dict(sorted(found.items()))


def _described(parameters: Iterable[Any]) -> Iterator[str]:
    """Yield a line of a list for each parameter."""
    for parameter in parameters:
        yield f"- {_names(parameter)}: {_text(parameter)}\n"


def _text(parameter: Any) -> str:
    """Return the description with the default, or an empty text for no parameter."""
    if parameter is None:
        return ""
    description = str(getattr(parameter, "help", None) or "")
    default = "" if "Default: " in description else _default(parameter)
    return f"{description} Default: {default}." if default else description


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    value = "" if parameter.is_flag else "=..."
    return ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return f"`{shown}`"
    if parameter.param_type_name == "argument" or parameter.is_flag or parameter.default in (None, ""):
        return ""
    return f"`{parameter.default}`"
