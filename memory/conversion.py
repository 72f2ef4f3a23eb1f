"""Convert between stored records and the structs of the client by field name.

A field with the same name on both sides is copied without being listed anywhere: adding one needs no change here.
Stored times are integer microseconds, those of the client are datetimes; sequences become lists or tuples, whichever
the target declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Struct

from reverie.clock import from_micros, to_micros

_T = TypeVar("_T")
_Convert = Callable[[Any], Any]
# Copied, so that the result does not share its containers with the source.
_CONTAINERS: Final[Mapping[Any, _Convert]] = {list: list, tuple: tuple, dict: dict, Mapping: dict}


def convert(source: object, target: type[_T], /, **overrides: Any) -> _T:
    """Return a `target` (struct or dataclass) with the same-named attributes of `source`.

    `overrides` are used as they are, in place of the attributes of `source`. A field that neither has keeps its
    default; `TypeError` where it has none.
    """
    values = dict(overrides)
    kinds: Any = type(source), target  # mypy takes no class for hashable
    for name, change in _shared_fields(*kinds):
        if name not in overrides:
            value = getattr(source, name)
            values[name] = value if change is None or value is None else change(value)
    return target(**values)


def set_fields(changes: Struct, *, leave_out: str = "") -> dict[str, Any]:
    """Return the fields of `changes` that are not UNSET by name, without the one that says what is changed."""
    fields = {name: getattr(changes, name) for name in changes.__struct_fields__ if name != leave_out}
    return {name: value for name, value in fields.items() if value is not UNSET}


@cache
def _shared_fields(source: type, target: type) -> tuple[tuple[str, _Convert | None], ...]:
    types = get_type_hints(target)
    return tuple((name, _conversion(types[name])) for name in _fields(target) if _has(source, name))


def _fields(kind: type) -> tuple[str, ...]:
    declared: Any = kind
    return tuple(declared.__struct_fields__ if issubclass(kind, Struct) else declared.__dataclass_fields__)


def _has(kind: type, name: str) -> bool:
    return hasattr(kind, name) or name in getattr(kind, "__dataclass_fields__", ())


def _conversion(declared: Any) -> _Convert | None:
    """Return how a value is brought into a declared type; None where it is copied as it is."""
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    kinds = {get_origin(member) or member for member in members}
    if datetime in kinds:
        return _to_datetime
    if int in kinds:
        return _to_micros
    return next((change for kind, change in _CONTAINERS.items() if kind in kinds), None)


def _to_datetime(value: Any) -> Any:
    return from_micros(value) if isinstance(value, int) else value


def _to_micros(value: Any) -> Any:
    return to_micros(value) if isinstance(value, datetime) else value
