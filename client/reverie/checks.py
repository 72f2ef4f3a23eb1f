"""Check input: names, texts, tags and JSON must be storable as they are, within the limits.

Each check returns its value, normalised where it says so, or raises `Rejected` naming the field and the limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from reverie import contract
from reverie.clock import new_id, to_micros
from reverie.contract import FilePayload, MessagePayload, Payload, WaitFor
from reverie.errors import Rejected
from reverie.tracing import current_traceparent

_WORKSPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# The years 1 to 9999, in microseconds since 1970 UTC: other times cannot be written as RFC 3339.
MICROS_RANGE: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# The largest number that every reader of JSON keeps as it is.
MAX_INTEGER: Final = 2**53
# Half of it: a message without a sequence gets the largest one of its session plus 1, which must fit, too.
MAX_SEQUENCE: Final = 2**52


def is_workspace_name(name: str) -> bool:
    """Return whether a workspace may have this name."""
    return _WORKSPACE.fullmatch(name) is not None


def check_workspace(name: object) -> str:
    """Return the name of a workspace, or raise `Rejected`: it becomes a folder name and must not escape its parent."""
    if not isinstance(name, str) or not is_workspace_name(name):
        raise Rejected(
            f"workspace {str(name)[:80]!r} is not a name: use 1 to 63 of a-z, 0-9, - and _, first a letter or digit",
            field="workspace",
        )
    return name


def check_agent(name: object) -> str:
    """Return the name of an agent, or raise `Rejected`."""
    checked: str = check_label("agent", name, required=True)
    return checked


def check_trace(trace: object) -> str:
    """Return a trace id; if none is given, the current span of OpenTelemetry, else a new one. Raises `Rejected`."""
    if not trace:
        return current_traceparent() or new_id()
    checked: str = check_label("trace", trace, required=True)
    return checked


def check_query(query: object) -> str:
    """Return a query. Raises `Rejected` unless it is text that can be encoded as UTF-8."""
    if not isinstance(query, str):
        raise Rejected(f"query must be a text, not {type(query).__name__}", field="query")
    _check_text("query", query)
    return query


def check_wait(wait: WaitFor, timeout_seconds: object) -> WaitFor:
    """Return the state to wait for. Raises `Rejected` for an unknown state or a timeout out of range."""
    if wait not in contract.WAITS:
        raise Rejected(f"wait is {str(wait)[:80]!r}; it must be one of {', '.join(contract.WAITS)}", field="wait")
    if not isinstance(timeout_seconds, (int, float)) or not 0 < timeout_seconds <= contract.MAX_WAIT_SECONDS:
        raise Rejected(
            f"timeout_seconds is {timeout_seconds!r}; it must be more than 0 and at most {contract.MAX_WAIT_SECONDS}",
            field="timeout_seconds",
        )
    return wait


def normalise_tags(tags: Iterable[object], *, field: str = "tags") -> list[str]:
    """Trim, lower-case and deduplicate tags, keeping their order. Raises `Rejected` beyond 16 tags of 64 characters."""
    if isinstance(tags, str):
        raise Rejected(f"{field} must be a list of texts, not one text", field=field)
    seen: dict[str, None] = {}
    for tag in tags:
        if not isinstance(tag, str):
            raise Rejected(f"{field} must contain texts, not {type(tag).__name__}", field=field)
        clean = tag.strip().lower()
        if not clean:
            continue
        if len(clean) > contract.MAX_TAG_CHARACTERS:
            raise Rejected(
                f"a tag has {len(clean)} characters; the limit is {contract.MAX_TAG_CHARACTERS}", field=field
            )
        _check_text(field, clean)
        seen[clean] = None
    if len(seen) > contract.MAX_TAGS:
        raise Rejected(f"{len(seen)} tags; the limit is {contract.MAX_TAGS}", field=field)
    return list(seen)


def check_payload(payload: Payload) -> None:
    """Raise `Rejected` unless a payload can be stored as it is: limits, text, ranges and JSON."""
    if payload.v > contract.PAYLOAD_VERSION:
        raise Rejected(
            f"the payload has version {payload.v}, newer than {contract.PAYLOAD_VERSION}: upgrade the workers",
            field="v",
        )
    check_label("id", payload.id, required=True)
    check_label("agent", payload.agent, required=True)
    if not MICROS_RANGE[0] <= payload.created_at <= MICROS_RANGE[1]:
        raise Rejected("created_at is outside the years 1 to 9999", field="created_at")
    check_json("metadata", payload.metadata, contract.MAX_METADATA_BYTES)
    if payload.tags != normalise_tags(payload.tags):
        raise Rejected("tags must be trimmed, lower case and without duplicates", field="tags")
    if isinstance(payload, FilePayload):
        check_label("session", payload.session)
        check_label("user", payload.user)
        check_label("source_uri", payload.source_uri, required=True, limit=2_048)
        check_text("content", payload.content, contract.MAX_FILE_BYTES)
    else:
        _check_turn(payload)


def _check_turn(payload: MessagePayload) -> None:
    check_label("session", payload.session, required=True)
    for field in ("name", "tool_call_id", "tool_name", "user", "provider", "chat_id", "channel"):
        check_label(field, getattr(payload, field))
    if not payload.content and not payload.tool_calls and not payload.original:
        raise Rejected("content is empty and there are no tool_calls", field="content")
    check_text("content", payload.content, contract.MAX_CONTENT_BYTES)
    if payload.tool_calls:
        check_json("tool_calls", payload.tool_calls, contract.MAX_TOOL_CALLS_BYTES)
    if payload.original is not None:
        check_text("original", payload.original, contract.MAX_ORIGINAL_BYTES)
    if payload.importance is not None and not 0.0 <= payload.importance <= 1.0:
        raise Rejected(f"importance is {payload.importance}; it must be from 0 to 1", field="importance")
    if payload.token_count is not None and not 0 <= payload.token_count < 2**31:
        raise Rejected("token_count must not be negative", field="token_count")
    if payload.sequence is not None and not 0 < payload.sequence <= MAX_SEQUENCE:
        raise Rejected(f"sequence must be a whole number from 1 to {MAX_SEQUENCE:,}", field="sequence")


def check_text(field: str, text: str, limit_bytes: int) -> None:
    """Raise `Rejected` unless a text can be stored as it is, in at most `limit_bytes` of UTF-8."""
    size = len(_check_text(field, text))
    if size > limit_bytes:
        raise Rejected(f"{field} has {size:,} bytes; the limit is {limit_bytes:,}", field=field)


def _check_text(field: str, text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(
            f"{field} is not valid Unicode: a lone surrogate at character {error.start}", field=field
        ) from None
    if b"\x00" in encoded:
        raise Rejected(f"{field} contains a NUL character at byte {encoded.index(0)}", field=field)
    return encoded


def check_time(field: str, moment: datetime) -> datetime:
    """Return a time that can be stored and shown: with a time zone, within the years 1 to 9999 in UTC.

    Every time that a caller gives goes through this check, over HTTP, in a file or in a call of the client.
    """
    if moment.utcoffset() is None:
        raise Rejected(f"{field} needs a time zone, as in 2027-05-01T09:30:00Z", field=field)
    if not MICROS_RANGE[0] <= to_micros(moment) <= MICROS_RANGE[1]:
        raise Rejected(f"{field} is outside the years 1 to 9999 in UTC", field=field)
    return moment


def check_value(field: str, value: object) -> None:
    """Raise `Rejected` for a time, text or number that cannot be stored, on its own, in a list or in a struct.

    JSON of callers (a mapping) is checked by `check_json`, where a call takes it.
    """
    if isinstance(value, datetime):
        check_time(field, value)
    elif isinstance(value, str):
        _check_text(field, value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Rejected(f"{field} is {value}; it must be a finite number", field=field)
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise Rejected(f"{field} is out of range: it must be from {-MAX_INTEGER:,} to {MAX_INTEGER:,}", field=field)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            check_value(f"{field}.{name}", getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            check_value(field, item)


def check_label(field: str, value: object, *, required: bool = False, limit: int = contract.MAX_NAME_CHARACTERS) -> Any:
    """Return a short text that names something: not blank, no control characters, at most `limit` characters."""
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value.strip():
        raise Rejected(f"{field} must be a text that is not blank", field=field)
    if len(value) > limit:
        raise Rejected(f"{field} has {len(value):,} characters; the limit is {limit:,}", field=field)
    if _CONTROL.search(value):
        raise Rejected(f"{field} contains a control character", field=field)
    _check_text(field, value)
    return value


def check_json(field: str, value: object, limit_bytes: int, *, any_text: bool = False) -> None:
    """Raise `Rejected` unless a value can be encoded as JSON in at most `limit_bytes`.

    With `any_text` a text may hold any character, also NUL.
    """
    if not value:
        return
    check_depth(field, value, any_text=any_text)
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:  # UnicodeEncodeError is a ValueError
        raise Rejected(f"{field} cannot be written as JSON: {error}", field=field) from None
    if size > limit_bytes:
        raise Rejected(f"{field} has {size:,} bytes of JSON; the limit is {limit_bytes:,}", field=field)


def check_depth(field: str, value: object, *, any_text: bool = False) -> None:
    """Raise `Rejected` for JSON nested too deep, and for numbers that JSON does not have.

    Iterative: a depth that breaks a decoder must not break this check.
    """
    level = [value]
    for _ in range(contract.MAX_JSON_DEPTH):
        level = [inner for item in level for inner in _children(item, field, any_text)]
        if not level:
            return
    raise Rejected(f"{field} is nested more than {contract.MAX_JSON_DEPTH} levels deep", field=field)


def _children(item: object, field: str, any_text: bool) -> Iterable[object]:
    if isinstance(item, float) and not math.isfinite(item):
        raise Rejected(f"{field} contains NaN or infinity, which JSON cannot represent", field=field)
    for text in item if isinstance(item, Mapping) else (item,):
        if isinstance(text, str) and not any_text:
            _check_text(field, text)
    if isinstance(item, Mapping):
        if not all(isinstance(key, str) for key in item):
            raise Rejected(f"{field} has a key that is not a text", field=field)
        return item.values()
    return item if isinstance(item, (list, tuple)) else ()
