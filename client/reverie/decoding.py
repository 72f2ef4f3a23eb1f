"""Decode untrusted values into typed structs; an invalid value is `Rejected`, naming the field and the allowed values.

The only place that reads the text of msgspec's validation errors.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from reverie.checks import check_depth
from reverie.errors import Rejected
from reverie.fields import bounds_text

_PATH: Final = re.compile(r" - at `(?:key in )?\$\.?(?:\[\.\.\.\]\.?)?([^`]*)`")
_KEY: Final = re.compile(r" - at `key` in `\$\.?([^`]*)`")
_NAMED: Final = re.compile(r"(?:unknown|required) field `([^`]*)`")
_ENUM: Final = re.compile(r"Invalid enum value ('.*'|\S+)", re.DOTALL)
_BOUND: Final = re.compile(r"Expected `(?:int|float)` [<>]=? ?[-\d.]+")
_TYPES: Final = re.compile(r"Expected `([a-z |]+)`, got `(\w+)`")
# The names in errors of JSON's types, and of Python's types without a counterpart there.
_TYPE_NAMES: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a time",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "NoneType": "null",
}

# By the name of an argument, a field or a method, what other programs for memories and agents call it.
_ALIKE: Final = {
    "limit": "top_k topK k n n_results max_results num_results",
    "session": "session_id thread_id conversation_id run_id",
    "user": "user_id",
    "content": "text memory",
    "query": "q text question",
    "token_budget": "max_tokens tokens",
    "messages": "content",
    "created_at": "timestamp time date",
    "every": "interval seconds every_seconds",
    "due_at": "at when",
    "metadata": "title",
    "id": "memory_id file_id schedule_id",
    "source_uri": "path url file",
    "agent": "agent_id",
    "url": "base_url host",
    "token": "api_key",
    "recall": "search query find retrieve",
    "remember": "add save store",
}

_T = TypeVar("_T")

_described: Final[set[Any]] = set()
_describing: Final = threading.Lock()


def describe(kind: Any) -> None:
    """Have msgspec build its description of a type, which it does at the first use of the type.

    It crashes the process when two threads build one at the same time (msgspec 0.22): so call this before decoding
    where several threads may.
    """
    if kind not in _described:
        with _describing:
            msgspec.json.Decoder(kind)
            _described.add(kind)


def convert(raw: object, kind: type[_T], *, name: str, from_text: bool = False) -> _T:
    """Convert `raw`, made of dicts, lists and plain values, to a struct of type `kind`.

    `name` is the name of the whole value in errors ("body", "message"). With `from_text`, numbers, booleans and None
    may be texts, as in a query string. Raises `Rejected`.
    """
    if not isinstance(raw, Mapping):
        raise Rejected(f"{name} must be an object, not {type_name(raw)}", field=name)
    describe(kind)
    try:
        return msgspec.convert(raw, kind, strict=not from_text)
    except RecursionError:
        for field, value in raw.items():
            check_depth(str(field), value)
        raise
    except UnicodeEncodeError as error:  # raised for a text where a number is expected
        surrogate = ord(error.object[error.start])
        raise Rejected(f"{name} has a lone surrogate (U+{surrogate:04X}), which is no text", field=name) from None
    except msgspec.ValidationError as error:
        failure = rejected(error, kind, name=name, raw=raw)
        if from_text:  # a repeated parameter has no index
            parameter = failure.field.partition("[")[0]
            failure = Rejected(str(failure).replace(failure.field, parameter, 1), field=parameter)
        raise failure from None


def check_keys(text: bytes, *, name: str) -> None:
    """Raise `Rejected` if an object in a JSON text has a key twice: of the two values, decoding would keep the last.

    `name` is the name of the whole text in errors. A text that is not JSON passes. Takes 4 ms for each megabyte: the
    objects are checked only if decoding and encoding the text again changes the number of its quotation marks.
    """
    try:
        again = msgspec.json.encode(msgspec.json.decode(text))
    except (ValueError, RecursionError):
        again = b""
    if _quotation_marks(again) != _quotation_marks(text):
        with suppress(ValueError, RecursionError):
            json.loads(text, object_pairs_hook=lambda pairs: _check_pairs(pairs, name))


def _quotation_marks(text: bytes) -> int:
    """Return how many quotation marks begin or end a text in JSON."""
    if b"\\" not in text:
        return text.count(b'"')
    text = text.replace(rb"\\", b"")
    return text.count(b'"') - text.count(rb"\"")


def _check_pairs(pairs: list[tuple[str, object]], name: str) -> None:
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            shown = key[:80].encode("utf-8", "replace").decode()
            raise Rejected(f"{name} has the key {shown!r} twice in one object: send it once", field=shown)
        seen.add(key)


def type_name(value: object) -> str:
    """Return the name of a value's type in errors, such as "a text"."""
    name = type(value).__name__
    return _TYPE_NAMES.get(name, name)


def near_names(name: str, known: Iterable[str]) -> str:
    """Return the end of the error for an unknown name: the known one that means it, else the nearest, else all."""
    import difflib

    names = list(dict.fromkeys(known))
    alike = [own for own, others in _ALIKE.items() if own in names and name in others.split()]
    nearest = alike or difflib.get_close_matches(name, names, n=1, cutoff=0.65)
    return f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(names)}"


def rejected(
    error: msgspec.ValidationError, kind: type, *, name: str, raw: Mapping[Any, Any] | None = None
) -> Rejected:
    """Convert a validation error of msgspec to `Rejected` with the path of the field and its allowed values.

    `raw` is the input if it is known: the error then quotes the invalid value.
    """
    text = str(error)
    if found := _KEY.search(text):
        return Rejected(f"{found[1] or name} has a key that is not a text", field=found[1])
    parts = (_PATH.search(text), _NAMED.search(text))
    field = ".".join(found.group(1) for found in parts if found and found.group(1))
    hint, value = _hint(kind, field), (raw or {}).get(field)
    bounds = _bounds_text(hint)
    if text.startswith("Expected `int`, got"):
        return Rejected(f"{field} must be a whole number{f' from {bounds}' if bounds else ''}", field=field)
    if _BOUND.match(text) and bounds:
        shown = f"{field} is {value}" if isinstance(value, (int, float, str)) else field
        return Rejected(f"{shown}; it must be from {bounds}", field=field)
    if text.startswith("Invalid RFC3339"):
        shown = f"{field} {value[:80]!r}" if isinstance(value, str) else field
        return Rejected(f"{shown} is not a valid time with its zone: write it as in 2027-05-01T09:30:00Z", field=field)
    choices = ", ".join(_choices(hint))
    if (found := _ENUM.match(text)) and choices:
        return Rejected(f"{field} is {found.group(1)[:80]}; it must be one of {choices}", field=field)
    if text.startswith("Object contains unknown field"):
        return Rejected(_unknown_field(kind, field), field=field)
    if text.startswith("Object missing required field"):
        return Rejected(f"{field} is required", field=field)
    ending = f"; it must be one of {choices}" if choices else ""
    if (types := _TYPES.match(text)) and (described := _described_types(types[1], types[2], bounds)):
        return Rejected(f"{field or name} must be {described}{ending}", field=field)
    return Rejected(f"{field or name}: {_PATH.sub('', text)}{ending}", field=field)


def _unknown_field(kind: Any, field: str) -> str:
    """Return the error for a field that does not exist, with the nearest known name unless it is in a nested object."""
    text = f"unknown field {field!r}"
    if re.search(r"[.\[]", field) or not _is_struct(kind):
        return text
    return f"{text}: {near_names(field, kind.__struct_encode_fields__)}"


def _described_types(expected: str, got: str, bounds: str) -> str:
    """Return in words which type a value must have and has; empty if a type has no name here."""
    wanted = [_TYPE_NAMES.get(one, "") for one in expected.split(" | ") if one != "null" or expected == "null"]
    if not all(wanted):
        return ""
    interval = f" from {bounds}" if bounds else ""
    return f"{' or '.join(wanted)}{interval}, not {_TYPE_NAMES.get(got, got)}"


def _hint(kind: type, field: str) -> Any:
    """Return the type hint of a field by its path in JSON; of the nearest outer field that is declared, else None."""
    hint: Any = None
    structs: list[Any] = [kind] if _is_struct(kind) else []
    for name in re.sub(r"\[[^\[\]]*\]", "", field).split("."):
        for struct in structs:
            names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
            if name in names:
                hint = get_type_hints(struct, include_extras=True)[names[name]]
                break
        else:
            return hint
        structs = [part for part in _flattened(hint) if _is_struct(part)]
    return hint


def _is_struct(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, msgspec.Struct)


def _choices(hint: Any) -> list[str]:
    """Return the values of the literal types in a type hint."""
    choices = [str(choice) for part in _flattened(hint) if get_origin(part) is Literal for choice in get_args(part)]
    return list(dict.fromkeys(choices))


def _bounds_text(hint: Any) -> str:
    for part in _flattened(hint):
        for meta in get_args(part)[1:] if get_origin(part) is Annotated else ():
            if isinstance(meta, msgspec.Meta) and meta.ge is not None and meta.le is not None:
                return bounds_text(meta.ge, meta.le)
    return ""


def _flattened(hint: Any) -> list[Any]:
    """Return a type hint and all types nested in it."""
    if get_origin(hint) is Literal:
        return [hint]
    return [hint, *(inner for part in get_args(hint) for inner in _flattened(part))]
