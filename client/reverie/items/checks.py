"""Check the parts of items: namespaces, keys, values, paths into values, filters and vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from reverie import contract
from reverie.checks import check_text
from reverie.errors import Rejected

MAX_DEPTH: Final = 16
MAX_LABEL_CHARACTERS: Final = 256
MAX_KEY_CHARACTERS: Final = 512
# A page of text, not a file: values are read whole, and a search decodes those that it filters.
MAX_VALUE_BYTES: Final = 512 * 1024
MAX_FILTER_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 32
MAX_FIELD_CHARACTERS: Final = 256
# Enough for one vector of each part of a long text.
MAX_VECTORS: Final = 64
MAX_DIMENSION: Final = 8_192
OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def check_namespace(field: str, namespace: Sequence[str]) -> list[str]:
    """Return a namespace with at least one label. Raises `Rejected`."""
    if not namespace:
        raise Rejected(f"{field} is empty: give at least one label", field=field)
    return check_labels(field, namespace)


def check_labels(field: str, labels: Sequence[str]) -> list[str]:
    """Return the labels of a namespace, or of a part of one, perhaps none. Raises `Rejected`."""
    if isinstance(labels, str):
        raise Rejected(f"{field} must be a list of labels, not one text", field=field)
    if len(labels) > MAX_DEPTH:
        raise Rejected(f"{field} has {len(labels)} labels; the limit is {MAX_DEPTH}", field=field)
    return [_check_name(f"{field}[{place}]", label, MAX_LABEL_CHARACTERS) for place, label in enumerate(labels)]


def check_item_key(field: str, key: object) -> str:
    """Return the key of an item. Raises `Rejected`."""
    return _check_name(field, key, MAX_KEY_CHARACTERS)


def check_item_value(field: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of an item. Raises `Rejected` unless it is a JSON object of at most 512 KiB."""
    _check_json(field, value, MAX_VALUE_BYTES)
    return dict(value)


def check_filter(field: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a search. Raises `Rejected` for an unknown operator."""
    _check_json(field, conditions, MAX_FILTER_BYTES)
    _check_operators(field, field, conditions)
    return dict(conditions)


def check_index(field: str, paths: Sequence[str]) -> list[str]:
    """Return the paths of the texts to be indexed. Raises `Rejected` for too many or too long ones."""
    if isinstance(paths, str):
        raise Rejected(f"{field} must be a list of paths, not one text", field=field)
    if len(paths) > MAX_FIELDS:
        raise Rejected(f"{field} has {len(paths)} paths; the limit is {MAX_FIELDS}", field=field)
    return [_check_name(f"{field}[{place}]", path, MAX_FIELD_CHARACTERS) for place, path in enumerate(paths)]


def check_vectors(field: str, vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return vectors of one length. Raises `Rejected`."""
    if len(vectors) > MAX_VECTORS:
        raise Rejected(f"{field} has {len(vectors)} vectors; the limit is {MAX_VECTORS}", field=field)
    found = [check_vector(f"{field}[{place}]", vector) for place, vector in enumerate(vectors)]
    if len({len(vector) for vector in found}) > 1:
        raise Rejected(f"{field} has vectors of different lengths", field=field)
    return found


def check_vector(field: str, vector: Sequence[float]) -> list[float]:
    """Return a vector. Raises `Rejected` unless it has numbers, all of them finite."""
    numbers = [float(number) for number in vector]
    if not 1 <= len(numbers) <= MAX_DIMENSION or not all(map(math.isfinite, numbers)):
        raise Rejected(f"{field} must have 1 to {MAX_DIMENSION:,} finite numbers", field=field)
    return numbers


def _check_name(field: str, name: object, limit: int) -> str:
    """Return a text that names something: any characters but NUL, so that names of other stores stay what they are."""
    if not isinstance(name, str) or not name:
        raise Rejected(f"{field} must be a text that is not empty", field=field)
    if len(name) > limit:
        raise Rejected(f"{field} has {len(name):,} characters; the limit is {limit}", field=field)
    check_text(field, name, 4 * limit)
    return name


def _check_operators(field: str, where: str, conditions: Mapping[str, Any]) -> None:
    for key, condition in conditions.items():
        if not isinstance(condition, Mapping):
            continue
        operators = [name for name in condition if str(name).startswith("$")]
        unknown = next((name for name in operators if name not in OPERATORS), None)
        if unknown is not None:
            known = ", ".join(OPERATORS)
            raise Rejected(f"{where}[{key!r}]: unknown operator {unknown!r}; known are {known}", field=field)
        if not operators:
            _check_operators(field, f"{where}[{key!r}]", condition)


def _check_json(field: str, value: Mapping[str, Any], limit_bytes: int) -> None:
    """Raise `Rejected` unless a value can be written as JSON. A text may hold any character, also NUL."""
    _check_depth(field, value)
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:  # UnicodeEncodeError is a ValueError
        raise Rejected(f"{field} cannot be written as JSON: {error}", field=field) from None
    if size > limit_bytes:
        raise Rejected(f"{field} has {size:,} bytes of JSON; the limit is {limit_bytes:,}", field=field)


def _check_depth(field: str, value: object) -> None:
    """Raise `Rejected` for JSON nested too deep, and for NaN and infinity. Iterative, whatever the depth is."""
    level: list[object] = [value]
    for _ in range(contract.MAX_JSON_DEPTH):
        level = [inner for item in level for inner in _children(field, item)]
        if not level:
            return
    raise Rejected(f"{field} is nested more than {contract.MAX_JSON_DEPTH} levels deep", field=field)


def _children(field: str, item: object) -> Iterable[object]:
    if isinstance(item, float) and not math.isfinite(item):
        raise Rejected(f"{field} contains NaN or infinity, which JSON cannot represent", field=field)
    if isinstance(item, Mapping):
        return item.values()
    return item if isinstance(item, (list, tuple)) else ()
