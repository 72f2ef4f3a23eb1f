"""Convert between stored records and the structs of the client by field name.

A field with the same name on both sides is copied without being listed anywhere: adding one needs no change here.
Stored times are integer microseconds, those of the client are datetimes; sequences become lists or tuples, whichever
the target declares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Struct

from reverie.clock import from_micros, to_micros

_T = TypeVar("_T")
_Convert = Callable[[Any], Any]
# How a value is brought into a type that the target declares and the source does not.
_CONVERSIONS: Final[Mapping[Any, _Convert]] = {
    datetime: lambda value: value if value is None or isinstance(value, datetime) else from_micros(value),
    int: lambda value: to_micros(value) if isinstance(value, datetime) else value,
    list: list,
    tuple: tuple,
    dict: dict,
}


class _Plan(NamedTuple):
    """The fields that a source and a target share, how to read them all at once, and those that need a conversion."""

    names: tuple[str, ...]
    read: Callable[[object], Any]
    conversions: tuple[tuple[str, _Convert], ...]


def convert(source: object, target: type[_T], /, **overrides: Any) -> _T:
    """Return a `target` (struct or dataclass) with the same-named attributes of `source`.

    `overrides` are used as they are, in place of the attributes of `source`. A field that neither has keeps its
    default; without a default, `TypeError` is raised.
    """
    kinds: Any = type(source), target  # mypy does not treat a class as hashable
    plan = _plan(*kinds)
    values = dict(zip(plan.names, plan.read(source), strict=True))
    for name, change in plan.conversions:
        if values[name] is not None:
            values[name] = change(values[name])
    values.update(overrides)
    return target(**values)


def set_fields(changes: Struct, *, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return by name the fields of `changes` that are not UNSET, without those that name the row (`leave_out`)."""
    fields = {name: getattr(changes, name) for name in changes.__struct_fields__ if name not in leave_out}
    return {name: value for name, value in fields.items() if value is not UNSET}


@cache
def _plan(source: Any, target: Any) -> _Plan:
    source_types, target_types = _types(source), _types(target)
    names = tuple(name for name in target_types if name in source_types or hasattr(source, name))
    conversions = []
    for name in names:
        kinds = _kinds(target_types[name])
        change = next((change for kind, change in _CONVERSIONS.items() if kind in kinds), None)
        if change is not None and not (name in source_types and kinds == _kinds(source_types[name])):
            conversions.append((name, change))
    return _Plan(names, _reader(names), tuple(conversions))


def _reader(names: tuple[str, ...]) -> Callable[[object], Any]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda source: tuple(getattr(source, name) for name in names)


def _types(kind: Any) -> dict[str, Any]:
    """Return the declared type of each field of a struct or dataclass; none for other classes."""
    declared: Any = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    types = get_type_hints(kind) if declared else {}
    return {name: types[name] for name in declared}


def _kinds(declared: Any) -> set[Any]:
    """Return the classes of a declared type without None: `list[str] | None` gives list. A Mapping counts as a dict."""
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    kinds = {get_origin(member) or member for member in members} - {type(None)}
    return {dict if kind is Mapping else kind for kind in kinds}
