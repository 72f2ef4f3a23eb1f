"""The filters of mem0's `search` and `get_all`: identities, and conditions on metadata."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from reverie.frameworks.mem0_records import IDENTITIES, InvalidCall, Scope, fields_of, scope_of
from reverie.memories.types import Memory

_ANY: Final = "*"
_HINT: Final = " in filters, such as filters={'user_id': 'kate'}"


def _contains(value: Any, part: Any) -> bool:
    return str(part) in value if isinstance(value, str) else part in value


def _contains_ignoring_case(value: Any, part: Any) -> bool:
    return str(part).casefold() in str(value).casefold()


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, options: value in options,
    "nin": lambda value, options: value not in options,
    "contains": _contains,
    "icontains": _contains_ignoring_case,
}
# What holds for a memory that has no such field.
_NEGATIONS: Final = ("ne", "nin")


class Filters:
    """The filters of a call, checked. `scope` is whose memories it is about."""

    def __init__(self, filters: object) -> None:
        """Raise `InvalidCall` for filters without an identity, and for conditions that cannot be checked."""
        if not isinstance(filters, (Mapping, type(None))):
            raise InvalidCall(f"filters must be an object, not {type(filters).__name__}", field="filters")
        named = dict(filters or {})
        identities = {name: named.pop(name, None) for name in IDENTITIES}
        if identities["user_id"] == _ANY:
            raise InvalidCall("user_id cannot be '*': the memories of each user are kept apart", field="filters")
        scope = scope_of(*identities.values(), hint=_HINT)
        present = {name: _ANY for name in ("agent_id", "run_id") if getattr(scope, name) == _ANY}
        self.scope: Scope = scope._replace(**dict.fromkeys(present))
        self._conditions = {**present, **named}
        _check(self._conditions)

    @property
    def is_only_user(self) -> bool:
        """Return whether all memories of the user match."""
        return not self._conditions and self.scope[1:] == (None, None)

    def match(self, memory: Memory) -> bool:
        """Return whether a memory belongs to the scope and meets the conditions."""
        fields = fields_of(memory)
        if not self.scope.covers(Scope(*(fields.get(name) for name in IDENTITIES))):
            return False
        return _holds(self._conditions, {**fields.pop("metadata", {}), **fields})


def _check(conditions: Mapping[str, Any]) -> None:
    for name, condition in conditions.items():
        if name in ("AND", "OR", "NOT"):
            if not isinstance(condition, list) or not all(isinstance(part, Mapping) for part in condition):
                raise InvalidCall(f"{name} in filters must be a list of filters", field="filters")
            if not condition and name != "AND":
                raise InvalidCall(f"{name} in filters needs at least one filter", field="filters")
            for part in condition:
                _check(part)
        elif name == "user_id":
            raise InvalidCall("user_id must be named once, outside of AND, OR and NOT", field="filters")
        elif isinstance(condition, Mapping):
            for unknown in condition.keys() - _OPERATORS.keys():
                raise InvalidCall(
                    f"filters[{name!r}] has the operator {unknown!r}; there are {', '.join(_OPERATORS)}",
                    field="filters",
                )


def _holds(conditions: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return all(_meets(name, condition, fields) for name, condition in conditions.items())


def _meets(name: str, condition: Any, fields: Mapping[str, Any]) -> bool:
    if name == "AND":
        return all(_holds(part, fields) for part in condition)
    if name == "OR":
        return any(_holds(part, fields) for part in condition)
    if name == "NOT":
        return not any(_holds(part, fields) for part in condition)
    if not isinstance(condition, Mapping):
        return name in fields and (condition == _ANY or bool(fields[name] == condition))
    return all(_compare(key, fields, name, value) for key, value in condition.items())


def _compare(key: str, fields: Mapping[str, Any], name: str, value: Any) -> bool:
    if name not in fields:
        return key in _NEGATIONS
    try:
        return bool(_OPERATORS[key](fields[name], value))
    except TypeError:  # values of different types cannot be compared
        return False
