"""Makes `docs/configuration.md` from the settings themselves."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from worker.settings import Settings

_HEAD: Final = """\
<!-- Written by `make docs` from worker/settings_declared.py: change the descriptions there. -->
# Configuration

Reverie runs without any configuration. Each process reads its settings once, when it starts. If a setting is given
more than once, the last of these takes precedence:

1. the default,
2. `reverie.toml` in the current folder, or the file that `REVERIE_CONFIG` names,
3. an environment variable: `REVERIE_` followed by the key in capitals, such as `REVERIE_EMBEDDING_DEVICE`,
4. a flag of the command: `--data`, `--workspace`, `--broker`, and `--host` and `--port` of `up` and `serve`.

`reverie up` passes its settings on to the processes that it starts. Workers on other hosts read their own settings:
`broker`, `broker_prefix` and all settings that begin with `embedding_` must be the same on every host.

What was measured is no setting but a constant beside the code that uses it. A local embedding model uses all cores;
`OMP_NUM_THREADS` limits it to fewer.

An unknown key or variable is an error that names the most similar one. An empty variable is ignored. Each key below has
its default and, in brackets, the values that it allows; no number may be negative.

```toml
# reverie.toml
data = "/var/lib/reverie"
embedding_device = "cpu"
worker_concurrency = 4
```

"""

_TAIL: Final = """
## Other environment variables

- `REVERIE_CONFIG`: the settings file. Default: `reverie.toml` in the current folder.
- `REVERIE_AGENT`: default of the client's `agent=` and the command line's `--agent`.
- `REVERIE_URL`: URL of the server, for the client and commands. Default: `http://127.0.0.1:7437`.
- `REVERIE_TOKEN`: for the server the operator's token, at least 32 characters. For the client and the command line the
  token to send; without one they find that of a server of the same user on this machine.
- `REVERIE_PROCESS`: name of a worker or beat in logs and in `reverie status`.
- `REVERIE_LOG_FILE`, `REVERIE_PARENT_PID`: set by `reverie up` for its processes.

The client also reads `REVERIE_BROKER`, `REVERIE_BROKER_PREFIX` and `REVERIE_WORKSPACE`, unless its arguments set
them.
"""

_BOUNDS: Final = (
    (annotated_types.Ge, "ge", "at least {}"),
    (annotated_types.Gt, "gt", "more than {}"),
    (annotated_types.Le, "le", "at most {}"),
    (annotated_types.Lt, "lt", "less than {}"),
)


# The settings that most installations change; the page begins with them.
COMMON: Final = (
    "data", "database", "broker", "broker_key", "host", "port", "worker_concurrency", "embedding_provider",
    "embedding_model", "embedding_device", "language_model_base_url", "language_model", "language_model_api_key",
    "context_token_budget", "backup_folder",
)  # fmt: skip


def page() -> str:
    """Return the whole page as Markdown."""
    groups: list[type[Any]] = [*Settings.__bases__]
    others = [_section(group.title, [key for key in group.model_fields if key not in COMMON]) for group in groups]
    return _HEAD + "\n".join([_section("Settings that most installations touch", COMMON), *others]) + _TAIL


def _section(title: str, keys: Iterable[str]) -> str:
    """Return a list of settings with its heading."""
    return f"## {title}\n\n{''.join(_row(key, Settings.model_fields[key]) for key in keys)}"


def _row(key: str, field: FieldInfo) -> str:
    value, allowed = _default(field), _allowed(field)
    return f"- `{key}`{value and f' = {value}'}{allowed and f' ({allowed})'}: {field.description or ''}\n"


def _allowed(field: FieldInfo) -> str:
    """Return the values or the range that a setting allows; empty if any value, or any from 0 on, is allowed."""
    kind: Any = field.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    bounds = [
        words.format(f"{getattr(rule, name):,}")
        for rule in field.metadata
        for bound, name, words in _BOUNDS
        if isinstance(rule, bound) and getattr(rule, name) != 0
    ]
    match bounds:
        case [least, most] if least.startswith("at least ") and most.startswith("at most "):
            return f"{least.removeprefix('at least ')} to {most.removeprefix('at most ')}"
        case _:
            return ", ".join(bounds)


def _default(field: FieldInfo) -> str:
    if isinstance(field.json_schema_extra, dict) and "default" in field.json_schema_extra:  # depends on the machine
        return f"`{field.json_schema_extra['default']}`"
    if field.default is PydanticUndefined:
        return "required"
    if field.default in (None, ""):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
