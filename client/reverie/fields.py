"""The field types of calls: each has a description, limits, and a check of its value.

The client, the HTTP body, the command line and the API description all read these declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from reverie import contract
from reverie.checks import MICROS_RANGE, check_json, check_label, check_query, check_text, check_value, normalise_tags
from reverie.clock import rfc3339, to_micros
from reverie.errors import Rejected

# Largest count in a page of a list, and the largest offset: SQLite counts in 64 bits, JSON in 53.
MAX_PAGE: Final = 1_000
MAX_COUNT: Final = 2**53

Check: TypeAlias = Callable[[str, Any], Any]

_S = TypeVar("_S", bound=Struct)


def checked(check: Check, description: str = "", *, schema: dict[str, Any] | None = None) -> Meta:
    """Return an annotation with a check: `check(field, value)` returns the value normalised or raises `Rejected`."""
    return Meta(description=description or None, extra={"check": check}, extra_json_schema=schema)


def label(description: str, *, limit: int = contract.MAX_NAME_CHARACTERS) -> Meta:
    """Return the annotation of a name or id of at most `limit` characters."""
    check = partial(check_label, required=True, limit=limit)
    return checked(check, description, schema={"minLength": 1, "maxLength": limit})


def bounded_text(description: str, *, limit_bytes: int, blank_hint: str = "") -> Meta:
    """Return the annotation of a text of at most `limit_bytes`.

    With a `blank_hint`, the text must not be blank: the hint says in the error what to do.
    """
    return checked(partial(_check_bounded_text, limit_bytes, blank_hint), description)


def _check_bounded_text(limit_bytes: int, blank_hint: str, field: str, text: str) -> str:
    if blank_hint and not text.strip():
        raise Rejected(f"{field} is blank: {blank_hint}", field=field)
    check_text(field, text, limit_bytes)
    return text


def check_tags(field: str, tags: Sequence[str]) -> list[str]:
    """Return normalised tags. Raises `Rejected` for more than 16 tags or 64 characters in one."""
    return normalise_tags(tags, field=field)


def _check_query(_: str, query: str) -> str:
    return check_query(query)


def _check_metadata(field: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    check_json(field, metadata, contract.MAX_METADATA_BYTES)
    return dict(metadata)


def check_fields(struct: _S) -> _S:
    """Return a struct with every field that is set checked and normalised. Raises `Rejected`."""
    for field, name in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True):
        check_value(name, getattr(struct, field))
    changes: dict[str, Any] = {}
    for field, name, check in _checks_of(type(struct)):
        value = changes.get(field, getattr(struct, field))
        if value is not None and value is not UNSET:
            changes[field] = check(name, value)
    return replace(struct, **changes) if changes else struct


@cache
def _checks_of(kind: type[Struct]) -> tuple[tuple[str, str, Check], ...]:
    """Return the checks of a struct, each as the field, its name in JSON (for errors) and the check."""
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
        raise Rejected(f"{field} is {number}; it must be from {bounds_text(low, high)}", field=field)
    return number


def bounds_text(low: float, high: float) -> str:
    """Return the range of a number as errors show it: such as "1 to 100"."""
    return f"{low:,} to {high:,}" if isinstance(high, int) else f"{low:g} to {high:g}"


SessionId = Annotated[str, label("The id of a session.")]
# By default the user of the session that a call names.
UserId = Annotated[
    str, label("The end user who asks: content of other users is left out, unless it is shared or they are in a group.")
]
OwnId = Annotated[str, label("An id of your own.")]
ChannelId = Annotated[str, label("The id of a channel.")]
Tags = Annotated[Sequence[str], checked(check_tags, "Only results with all of these tags; at most 16.")]
Query = Annotated[str, checked(_check_query, "What to search for, in natural language.", schema={"maxLength": 100_000})]
Metadata = Annotated[dict[str, Any], checked(_check_metadata, "Your own data, at most 64 KiB of JSON.")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="The maximum number of items to return.")]
Offset = Annotated[int, Meta(ge=0, le=MAX_COUNT, description="The number of items to skip.")]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_HINT: Final = "write it as in 2023-05-03T09:30:00Z, or 2023-05-03 for the end of that day"
_MICROSECOND: Final = timedelta(microseconds=1)


def micros_of(moment: str | date) -> int:
    """Return a moment in microseconds; a date is the last microsecond of that day. Raises `ValueError`."""
    if isinstance(moment, str):
        text = moment.strip()
        moment = date.fromisoformat(text) if _DATE.fullmatch(text) else datetime.fromisoformat(text)
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, 23, 59, 59, 999_999, tzinfo=UTC)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return to_micros(moment)


def micros_until(moment: str | date | None, *, now: int) -> int | None:
    """Return a checked moment in microseconds, `now` for one in the future; None for None."""
    return None if moment is None else min(now, micros_of(moment))


def _check_moment(field: str, moment: Any) -> str:
    shown = repr(moment[:80]) if isinstance(moment, str) else str(moment)
    try:
        micros = micros_of(moment)
        if not MICROS_RANGE[0] <= micros <= MICROS_RANGE[1]:
            raise OverflowError
        return rfc3339(micros)
    except ValueError as error:
        what = "has no time zone" if str(error) == "no time zone" else "is not a time"
        raise Rejected(f"{field} {shown} {what}: {_HINT}", field=field) from None
    except OverflowError:
        raise Rejected(f"{field} {shown} is out of range: {_HINT}", field=field) from None


if TYPE_CHECKING:
    Moment: TypeAlias = str | datetime | date
else:
    Moment = str

AsOf = Annotated[
    Moment,
    checked(
        _check_moment,
        "Look back to this time, such as 2023-05-03T09:30:00Z, or to the end of a day, such as 2023-05-03.",
    ),
]
