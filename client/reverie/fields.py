"""The field types of calls: each carries its description, its limits, and the check that its value passes.

A call's field is declared once, as one of these or with `described`; the client, the HTTP body, the command line and
the API description all read the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from reverie import contract
from reverie.checks import check_json, check_label, check_query, normalise_tags
from reverie.errors import Rejected

# Largest count in a page of a list, and the largest offset: SQLite counts in 64 bits, JSON in 53.
MAX_PAGE: Final = 1_000
MAX_COUNT: Final = 2**53

Check: TypeAlias = Callable[[str, Any], Any]

_S = TypeVar("_S", bound=Struct)


def checked(check: Check, description: str = "", *, schema: dict[str, Any] | None = None) -> Meta:
    """Return the annotation of a field whose value `check(field, value)` returns normalised, or raises `Rejected`."""
    return Meta(description=description or None, extra={"check": check}, extra_json_schema=schema)


def label(description: str, *, limit: int = contract.MAX_NAME_CHARACTERS) -> Meta:
    """Return the annotation of a short text that names something, of at most `limit` characters."""
    check = partial(check_label, required=True, limit=limit)
    return checked(check, description, schema={"minLength": 1, "maxLength": limit})


def check_tags(field: str, tags: Sequence[str]) -> list[str]:
    """Return tags normalised. Raises `Rejected` beyond 16 tags of 64 characters."""
    return normalise_tags(tags, field=field)


def _check_query(_: str, query: str) -> str:
    return check_query(query)


def _check_metadata(field: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    check_json(field, metadata, contract.MAX_METADATA_BYTES)
    return dict(metadata)


def check_fields(struct: _S) -> _S:
    """Return a struct with each field that is given checked and normalised. Raises `Rejected`."""
    changes: dict[str, Any] = {}
    for field, name, check in _checks_of(type(struct)):
        value = changes.get(field, getattr(struct, field))
        if value is not None and value is not UNSET:
            changes[field] = check(name, value)
    return replace(struct, **changes) if changes else struct


@cache
def _checks_of(kind: type[Struct]) -> tuple[tuple[str, str, Check], ...]:
    """Return the checks of a struct: the field, its name in JSON, which errors use, and the check."""
    hints = get_type_hints(kind, include_extras=True)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple((field, name, check) for field, name in names for check in _checks_in(hints[field]))


def _checks_in(hint: Any) -> Iterator[Check]:
    """Yield the checks of a type hint and of its alternatives, not of the items of a sequence."""
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.ge is not None and meta.le is not None:
            yield partial(_check_bounds, meta.ge, meta.le)
        if isinstance(meta, Meta) and meta.extra and "check" in meta.extra:
            yield meta.extra["check"]
    if get_origin(hint) in (Annotated, Union, UnionType):
        for part in get_args(hint):
            yield from _checks_in(part)


def _check_bounds(low: float, high: float, field: str, number: float) -> float:
    if not low <= number <= high:
        raise Rejected(f"{field} is {number}; it must lie in {bounds_text(low, high)}", field=field)
    return number


def bounds_text(low: float, high: float) -> str:
    """Return the lowest and the highest value of a number as people write them: 1 to 100, or [0, 1]."""
    return f"{low:,} to {high:,}" if isinstance(high, int) else f"[{low:g}, {high:g}]"


SessionId = Annotated[str, label("The id of a session.")]
ChannelId = Annotated[str, label("The id of a channel.")]
Tags = Annotated[Sequence[str], checked(check_tags, "Tags, all of which must match; at most 16 of 64 characters.")]
Query = Annotated[str, checked(_check_query, "What to look for, in plain words.", schema={"maxLength": 100_000})]
Metadata = Annotated[dict[str, Any], checked(_check_metadata, "Data of your own, as JSON of at most 64 KiB.")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="Return at most this many.")]
Offset = Annotated[int, Meta(ge=0, le=MAX_COUNT, description="Skip this many.")]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
