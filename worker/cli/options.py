"""Derive the options of a command from the call that it makes: names, types, defaults, limits and help.

    @application.command()
    @takes(Recall, arguments=("query",), leave_out=("query_embedding",))
    def recall(context: typer.Context, call: Recall, as_json: AsJson = False) -> None:
        ...

Each field of the call becomes `--its-name`, or an argument where it is named among `arguments`; lists become an option
that can be repeated, named in the singular. Invalid values are `Rejected` by the call itself, with the field.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import typer
from msgspec import NODEFAULT

from reverie.calls import Call, build, renamed
from reverie.errors import Rejected

_C = TypeVar("_C", bound=Call[Any])


def takes(
    kind: type[_C],
    *,
    arguments: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    helps: Mapping[str, str] | None = None,
    parsers: Mapping[str, Callable[[str], Any]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a call. The function gets the checked call as its argument `call`.

    `arguments` are fields that become positional arguments, in this order; `leave_out` are fields without an option.
    `options`, `defaults` and `helps` replace the derived name ("--tag", or "--pin/--unpin"), default and help of a
    field. A field with one of `parsers` is text on the command line, from which its value is made.
    """
    hints = get_type_hints(kind, include_extras=True)
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in leave_out]
    parameters = {
        field.name: _parameter(
            field,
            hints[field.name],
            positional=field.name in arguments,
            option=(options or {}).get(field.name),
            default=(defaults or {}).get(field.name, NODEFAULT),
            help_text=(helps or {}).get(field.name),
            is_text=field.name in (parsers or {}),
        )
        for field in fields
    }
    encode_names = {field.name: field.encode_name for field in fields}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> None:
            values = {name: value for name in parameters if (value := kwargs.pop(name)) is not None}
            values |= {name: parse(values[name]) for name, parse in (parsers or {}).items() if name in values}
            values = {encode_names[name]: value for name, value in values.items()}
            try:
                call = build(kind, _decoded(kind, values))
            except Rejected as error:
                names = {encode_names[name]: option.partition("/")[0] for name, option in (options or {}).items()}
                raise renamed(error, names) from None
            return function(*args, call=call, **kwargs)

        own = inspect.signature(function, eval_str=True).parameters
        positional = [parameters[name] for name in arguments]
        optional = [parameter for name, parameter in parameters.items() if name not in arguments]
        before = [parameter for parameter in own.values() if parameter.annotation is typer.Context]
        after = [one for name, one in own.items() if name != "call" and one.annotation is not typer.Context]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by typer
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*before, *positional, *optional, *after)]
        )
        return command

    return decorate


def _parameter(
    field: msgspec.structs.FieldInfo,
    hint: Any,
    *,
    positional: bool,
    option: str | None,
    default: Any,
    help_text: str | None,
    is_text: bool,
) -> inspect.Parameter:
    kind, description = str if is_text else _plain_type(hint), help_text or _description(hint)
    choices = _choices(hint)
    if choices:
        description = f"{description.rstrip('.')}: {', '.join(choices[:-1])} or {choices[-1]}." if description else ""
    if default is NODEFAULT:
        default = field.default
    required = default is NODEFAULT and field.default_factory is NODEFAULT
    shown = default if not required and isinstance(default, (str, int, float, bool)) else None
    if kind is bool and shown is None and option and "/" in option:
        annotation: Any = bool | None
    elif kind is list:
        annotation, shown = list[str] | None, None
    else:
        annotation = kind if required or shown is not None else kind | None
    name = option or "--" + (_singular(field.name) if kind is list else field.name).strip("_").replace("_", "-")
    info = typer.Argument(help=description) if positional else typer.Option(name, help=description)
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=empty if required else shown,
        annotation=Annotated[annotation, info],
    )


def _singular(name: str) -> str:
    return name if name.endswith("us") else name.removesuffix("s")


def _parts(hint: Any) -> list[Any]:
    """Return the alternatives of a type hint without its annotations and without None and UNSET."""
    if get_origin(hint) is Annotated:
        return _parts(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [part for one in get_args(hint) for part in _parts(one) if part not in (type(None), msgspec.UnsetType)]
    return [hint]


def _plain_type(hint: Any) -> Any:
    """Return what the command line takes for a field: a list for a sequence, text for a time, a choice or JSON."""
    parts = _parts(hint)
    if any(isinstance(origin := get_origin(part), type) and issubclass(origin, Sequence) for part in parts):
        return list
    kind = parts[0]
    return kind if kind in (bool, int, float, str) else str


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) if get_origin(hint) is not None for choice in _choices(part)]


def _description(hint: Any) -> str:
    """Return the outermost description of a field."""
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.description:
            return meta.description
    return next((text for part in get_args(hint) if (text := _description(part))), "")


def _decoded(kind: type[Call[Any]], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with JSON decoded where the call takes an object or any value."""
    hints = get_type_hints(kind, include_extras=True)
    by_name = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}
    return {name: _from_json(name, value) if _takes_json(by_name[name]) else value for name, value in values.items()}


def _takes_json(hint: Any) -> bool:
    return any(part is Any or get_origin(part) in (dict, Mapping) for part in _parts(hint))


def _from_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Rejected(f"{name} is not JSON: {error}", field=name) from None
