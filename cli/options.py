"""Derive the options of a command from the call that it makes: names, types, defaults, limits and help.

    @takes(Recall, arguments=("query",), leave_out=("query_embedding",))
    def recall(command: Invocation, call: Recall, as_json: AsJson = False) -> None:
        ...

Each field of the call becomes `--its-name`, or an argument where it is named among `arguments`; lists become an option
that can be repeated, named in the singular. Invalid values are `Rejected` by the call itself, with the field.

Here are also the common options, which may follow every command, and how options say durations: `90s`, `15m`, `2h`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import typer
import typer.main
from msgspec import NODEFAULT

from reverie.calls import Call, build, renamed
from reverie.clock import from_micros, now_micros
from reverie.decoding import check_keys
from reverie.errors import Rejected

# The path of an item of a list: tags[0].
_ITEM: Final = re.compile(r"(\w{1,40})\[(\d{1,9})\]")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Form:
    """How the fields of a call appear on the command line, as given to `takes`."""

    arguments: Sequence[str]
    options: Mapping[str, str]
    defaults: Mapping[str, Any]
    helps: Mapping[str, str]
    parsers: Mapping[str, Callable[[str], Any]]


def takes(
    *kinds: type[Call[Any]],
    arguments: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    options: Mapping[str, str] = _NOTHING,
    defaults: Mapping[str, Any] = _NOTHING,
    helps: Mapping[str, str] = _NOTHING,
    parsers: Mapping[str, Callable[[str], Any]] = _NOTHING,
    usage: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a call. The function gets the checked call as its argument `call`.

    `arguments` are fields that become positional arguments, in this order; `leave_out` are fields without an option.
    `options`, `defaults` and `helps` replace the derived name ("--tag", or "--pin/--unpin"), default and help of a
    field. A field with one of `parsers` is text on the command line, from which its value is made.

    A command of several calls has the options of all of them. It makes the first call that has every option given and
    requires no other; if there is none, the command is `Rejected` with the text `usage`.
    """
    form = _Form(arguments, options, defaults, helps, parsers)
    fields_by_kind = {kind: _fields(kind, leave_out) for kind in kinds}
    parameters: dict[str, inspect.Parameter] = {}
    for kind, fields in fields_by_kind.items():
        hints = get_type_hints(kind, include_extras=True)
        for name in [name for name in fields if name not in parameters]:
            required = all(name in other and other[name].required for other in fields_by_kind.values())
            parameters[name] = _parameter(fields[name], hints[name], form, required=required)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> None:
            values = {name: value for name in parameters if (value := kwargs.pop(name)) is not None}
            kind = kinds[0]
            if len(kinds) > 1:
                given = {name for name, value in values.items() if value not in ([], parameters[name].default)}
                kind = _kind_with(given, fields_by_kind, usage)
            try:
                return function(*args, call=_call(kind, values, form), **kwargs)
            except Rejected as error:
                _name_options(error, _option_names(kind, form))
                raise

        own = dict(inspect.signature(function, eval_str=True).parameters)
        before = [own.pop("command")] if "command" in own else []
        positional = [parameters[name] for name in arguments]
        optional = [parameter for name, parameter in parameters.items() if name not in arguments]
        after = [one for one in own.values() if one.name != "call"]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by typer
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*before, *positional, *optional, *after)]
        )
        command.takes = {kind: tuple(leave_out) for kind in kinds}  # type: ignore[attr-defined]  # read by a test
        return command

    return decorate


def _fields(kind: type[Call[Any]], leave_out: Sequence[str]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind) if field.name not in leave_out}


def _kind_with(
    given: set[str], fields_by_kind: Mapping[type[Call[Any]], Mapping[str, msgspec.structs.FieldInfo]], usage: str
) -> type[Call[Any]]:
    """Return the first call that has the given fields and requires no others. Raises `Rejected` with `usage`."""
    for kind, fields in fields_by_kind.items():
        required = {name for name, field in fields.items() if field.required}
        if given and required <= given <= fields.keys():
            return kind
    raise Rejected(usage)


def _call(kind: type[Call[Any]], values: Mapping[str, Any], form: _Form) -> Call[Any]:
    """Return a call made of the values on the command line, without those of other calls. Raises `Rejected`."""
    encode_names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    parsed = {
        encode_names[name]: form.parsers[name](value) if name in form.parsers else value
        for name, value in values.items()
        if name in encode_names
    }
    try:
        return build(kind, _decoded(kind, parsed))
    except Rejected as error:
        raise _without_index(error, parsed) from None


def _option_names(kind: type[Call[Any]], form: _Form) -> dict[str, str]:
    """Return the options of a call by the names that its fields have in errors."""
    hints = get_type_hints(kind, include_extras=True)
    names = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in form.arguments:
            option = form.options.get(field.name) or _option_of(field.name, _plain_type(hints[field.name]))
            names[field.encode_name] = names[field.name] = option.partition("/")[0]
    return names


def _name_options(error: Rejected, options: Mapping[str, str]) -> None:
    """Let an error name options instead of fields: at its beginning, in lists of several, and with an underscore.

    Any other name may be an ordinary word of its text, such as `at`.
    """
    if not options:  # of a call that has only arguments
        return
    names = "|".join(sorted(options, key=len, reverse=True))
    several = rf"\b(?:{names})(?:(?:,| and| or) (?:{names}))+\b"
    text = re.sub(several, lambda found: re.sub(names, lambda name: options[name[0]], found[0]), str(error))
    if error.field in options:
        text = re.sub(rf"^{_singular(error.field)}s?\b", options[error.field], text)
    error.args = (text,)
    renamed(error, {name: option for name, option in options.items() if "_" in name})


def _without_index(error: Rejected, values: Mapping[str, Any]) -> Rejected:
    """Return an error about an item of a list with the item named as it is given: in the singular, and counted from 1.

    A single item, or an item that the error quotes, has no number.
    """
    found = _ITEM.fullmatch(error.field)
    if found is None:
        return error
    name, number, given = _singular(found[1]), int(found[2]), values.get(found[1], ())
    if len(given) > 1 and f"{error.field} is {given[number]!r}" not in str(error):
        name = f"{name} {number + 1}"
    return Rejected(str(error).replace(error.field, name, 1), field=found[1], items=error.items)


def _parameter(field: msgspec.structs.FieldInfo, hint: Any, form: _Form, *, required: bool) -> inspect.Parameter:
    kind = str if field.name in form.parsers else _plain_type(hint)
    description = form.helps.get(field.name) or _description(hint)
    choices = list(dict.fromkeys(_choices(hint)))  # the type of a field for one or several values has its choices twice
    if choices:
        description = f"{description.rstrip('.')}: {', '.join(choices[:-1])} or {choices[-1]}." if description else ""
    default = form.defaults.get(field.name, field.default)
    required = required and default is NODEFAULT
    option = form.options.get(field.name)
    kinds_of_default = (str,) if field.name in form.parsers else (str, int, float, bool)  # a parser takes text only
    shown = default if not required and isinstance(default, kinds_of_default) else None
    if kind is bool and shown is None and option and "/" in option:
        annotation: Any = bool | None
    elif kind is list:
        annotation, shown = list[str] | None, None
    else:
        annotation = kind if required or shown is not None else kind | None
    name = option or _option_of(field.name, kind)
    info = typer.Argument(help=description) if field.name in form.arguments else typer.Option(name, help=description)
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=empty if required else shown,
        annotation=Annotated[annotation, info],
    )


def _option_of(name: str, kind: Any) -> str:
    """Return the option of a field: a list is an option that can be repeated, in the singular."""
    return "--" + (_singular(name) if kind is list else name).strip("_").replace("_", "-")


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
    """Return the command line's type for a field: a list for a sequence, text for a time, a choice or JSON."""
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
    return {name: from_json(name, value) if _takes_json(by_name[name]) else value for name, value in values.items()}


def _takes_json(hint: Any) -> bool:
    return any(part is Any or get_origin(part) in (dict, Mapping) for part in _parts(hint))


def from_json(name: str, text: str) -> Any:
    """Return what a JSON text of the command line holds. Raises `Rejected`."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise Rejected(f"{name} {text[:80]!r} is not JSON; put a text in double quotes", field=name) from None
    check_keys(text.encode(), name=name)
    return found


_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
# 12 digits exceed every cadence, and are few enough for int().
_DURATION: Final = re.compile(r"(-?[0-9]{1,12})\s*([smhd]?)")
_WEEKS: Final = re.compile(r"(\d{1,6})w")


def seconds_of(text: str, option: str) -> int:
    """Return the seconds in `90`, `90s`, `15m`, `2h` or `1d`. Raises `Rejected` naming the option for other texts."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise Rejected(
            f"{option} {text[:40]!r} is not a duration: give whole seconds, or a text such as 90s, 15m, 2h or 1d",
            field=option,
        )
    return int(match[1]) * _UNITS[match[2]]


def span(seconds: float) -> str:
    """Return seconds in the largest unit that divides them, up to days: `15m`."""
    unit = next((unit for unit in ("d", "h", "m") if seconds % _UNITS[unit] == 0), "s")
    return f"{seconds / _UNITS[unit]:.15g}{unit}"


def time_since(text: str, name: str = "since") -> str:
    """Return a time given as a duration before now, or as a date and time. Raises `Rejected`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            weeks = _WEEKS.fullmatch(text)
            seconds = int(weeks[1]) * _UNITS["w"] if weeks else seconds_of(text, name)
        except Rejected:
            raise Rejected(
                f"{name} is {text[:80]!r}; give a time like 90m, 2h or 3d, or a date and time", field=name
            ) from None
        moment = from_micros(max(0, now_micros() - seconds * 1_000_000))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _option(name: str, help_text: str, **form: Any) -> Any:
    def override(context: typer.Context, value: Any) -> None:
        if value is not None:
            context.find_root().obj.override(name, value)

    return typer.Option(f"--{name}", help=help_text, callback=override, expose_value=False, **form)


_carrier = typer.Typer(add_completion=False)


@_carrier.command()
def _command(
    data: Annotated[Path | None, _option("data", "The data folder.", readable=False)] = None,
    workspace: Annotated[str | None, _option("workspace", "The workspace.")] = None,
    agent: Annotated[str | None, _option("agent", "The agent.")] = None,
    broker: Annotated[str | None, _option("broker", "The URL of a broker.")] = None,
) -> None:
    """Declare the common options: Typer makes them from this signature, and they are added to the commands."""


def add_common_options(command: Any) -> None:
    """Add the common options to a command, or to each command of a group, unless it has an option of that name."""
    if hasattr(command, "commands"):
        for inner in command.commands.values():
            add_common_options(inner)
        if not command.invoke_without_command:
            return
    taken = {name for parameter in command.params for name in parameter.opts}
    command.params += [option for option in _options() if option.opts[0] not in taken]


@functools.cache
def _options() -> list[Any]:
    return list(typer.main.get_command(_carrier).params)
