"""Whether the value of an item fits a filter, as LangGraph's stores decide it.

A filter names fields and what they must be: a value, or operators such as `{"$gte": 3}`. A field of the value comes
first; otherwise the parts of the name between full stops lead to a field further in. What is missing counts as null,
and is neither larger, smaller nor different from anything, as in SQL.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def fits(value: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Return whether a value fits all conditions. The operators must be known: see `reverie.items.checks`."""
    return all(_holds(_field(value, name), condition) for name, condition in conditions.items())


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping) and name in value:
        return value[name]
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _holds(found: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_compares(found, name, wanted) for name, wanted in condition.items())
        return isinstance(found, Mapping) and fits(found, condition)
    return _equals(found, condition)


def _compares(found: Any, name: str, wanted: Any) -> bool:
    if name == "$eq":
        return _equals(found, wanted)
    if name == "$ne":
        return found is not None and not _equals(found, wanted)
    compare = _ORDERS[name]
    if isinstance(wanted, str):
        return isinstance(found, str) and compare(found, wanted)
    first, second = _number(found), _number(wanted)
    return first is not None and second is not None and compare(first, second)


def _equals(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return (
            isinstance(found, Sequence)
            and not isinstance(found, str)
            and len(found) == len(wanted)
            and all(_holds(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)


def _number(value: Any) -> float | None:
    """Return a number, or the number that a text is; None for anything else."""
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None
