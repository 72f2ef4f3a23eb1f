"""Write `docs/configuration.md` from the settings themselves: `python -m worker.settings_docs [--check] FILE`."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from worker.settings import PREFIX, Settings

_HEAD: Final = """\
<!-- Written by `make docs` from worker/settings.py: change the descriptions there. -->
# Configuration

Reverie runs without any configuration. What is set is read once, when a process starts; where a setting is given
more than once, the later of these wins:

1. the default,
2. `reverie.toml` in the current folder, or the file that `REVERIE_CONFIG` names,
3. an environment variable, `REVERIE_` and the key in capitals,
4. a flag of the command (`--data`, `--workspace`, `--broker`, and for `up` and `serve` `--host` and `--port`).

`reverie up` passes its settings on to the processes that it starts. Workers on other hosts read their own: the
broker and its prefix, and everything that begins with `embedding_`, have to be the same on all of them.

An unknown key or variable is an error that names the nearest one. An empty variable counts as not set.

```toml
# reverie.toml
data = "/var/lib/reverie"
embedding_device = "cpu"
worker_concurrency = 4
```

## Settings

| key in `reverie.toml` | environment variable | type | default | what |
| --- | --- | --- | --- | --- |
"""

_TAIL: Final = """
## Variables that are no settings

| environment variable | read by | what |
| --- | --- | --- |
| `REVERIE_CONFIG` | every command | The settings file. Default: `reverie.toml` in the current folder. |
| `REVERIE_AGENT` | client, command line | Whose memories: the client's `agent=`, the command line's `--agent`. |
| `REVERIE_URL` | client, commands that ask the server | Where the server is. Default: `http://127.0.0.1:7437`. |
| `REVERIE_TOKEN` | server, client, command line | What the server asks for and the others send. \
Without one, the server listens on loopback addresses only. |
| `REVERIE_PROCESS` | worker, beat | The name of the process in logs and in `reverie status`. |
| `REVERIE_PARENT_PID` | set by `reverie up` | Who started a process, so that it ends when that one is gone. |

The client reads `REVERIE_BROKER`, `REVERIE_BROKER_PREFIX` and `REVERIE_WORKSPACE` too, where its arguments leave
them open.
"""

_BOUNDS: Final = (
    (annotated_types.Ge, "ge", "at least {}"),
    (annotated_types.Gt, "gt", "more than {}"),
    (annotated_types.Le, "le", "at most {}"),
    (annotated_types.Lt, "lt", "less than {}"),
)
_NAMES: Final = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`", Path: "path"}


def page() -> str:
    """The whole page as Markdown."""
    return _HEAD + "".join(_row(key, field) for key, field in Settings.model_fields.items()) + _TAIL


def _row(key: str, field: FieldInfo) -> str:
    cells = (f"`{key}`", f"`{PREFIX}{key.upper()}`", _type(field), _default(field), field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _type(field: FieldInfo) -> str:
    kind: Any = field.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    bounds = [
        words.format(f"{getattr(rule, name):,}")
        for rule in field.metadata
        for bound, name, words in _BOUNDS
        if isinstance(rule, bound)
    ]
    return ", ".join([_NAMES[kind], *bounds])


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "(has to be given)"
    if field.default is None:
        return "none"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def write_or_check(text: str, arguments: list[str]) -> int:
    """Write a page to the file named, to standard output without one, or with `--check` tell whether it is current."""
    files = [Path(argument) for argument in arguments if argument != "--check"]
    if not files:
        sys.stdout.write(text)
    elif "--check" not in arguments:
        files[0].write_text(text, encoding="utf-8")
    elif not files[0].exists() or files[0].read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{files[0]} is not what the code gives now: run `make docs`\n")
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` tell whether the file is current; returns the exit code."""
    return write_or_check(page(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
