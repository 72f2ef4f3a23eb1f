"""What requests carry: JSON bodies as typed structs, and the errors that say what is wrong with them."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NoReturn, TypeVar

import msgspec
from fastapi import Request

from reverie.checks import choices_of
from reverie.contract import WaitFor
from reverie.errors import Rejected
from reverie.problems import Malformed, TooLarge

_FIELD = re.compile(r" - at `\$\.?([^`]*)`")
_NAMED = re.compile(r"(?:unknown|required) field `([^`]*)`")


class MessagesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of one session, named by its id or by provider and chat id."""

    messages: list[Any]
    session: str | None = None
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    strict: bool = False
    wait: WaitFor = "queued"
    timeout_seconds: float = 30.0


class FileBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of a document."""

    source_uri: str
    content: str
    id: str | None = None
    session: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    wait: WaitFor = "queued"
    timeout_seconds: float = 30.0


class SessionSearchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/sessions/search."""

    query: str
    tags: list[str] = []
    mode: Literal["keyword", "vector", "hybrid"] = "hybrid"
    limit: int = 5


class RecallBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for, where, and how."""

    query: str
    session: str | None = None
    channel: str | None = None
    scope: Literal["conversation", "channel", "workspace", "account"] | None = None
    tags: list[str] = []
    kinds: list[Literal["message", "file", "memory"]] = []
    mode: Literal["keyword", "vector", "hybrid"] = "hybrid"
    limit: int = 5
    query_embedding: list[float] | None = None
    fusion: Literal["contextual", "weighted", "rrf"] = "contextual"
    vector_weight: float | None = None
    fts_weight: float | None = None
    neighbours: int = 0
    explain: bool = False


class ContextBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which session the context is wanted, for what query, and how much of it."""

    session: str
    query: str | None = None
    channel: str | None = None
    token_budget: int | None = None
    max_messages: int | None = None
    refine: bool = False


class RestoreBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Into how many tokens a session is to be restored."""

    token_budget: int | None = None


class CheckpointBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a checkpoint of an agent's memory files is made for."""

    message: str | None = None


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a session before its first message."""

    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    metadata: dict[str, Any] = {}


class ArchiveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether an active session is to be archived, too."""

    force: bool = False


_T = TypeVar("_T")


async def read_body(request: Request, kind: type[_T], *, limit_bytes: int) -> _T:
    """Read and decode a request's body. Raises `TooLarge`, `Malformed`, or `Rejected` naming the field."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
    return decode(b"".join(chunks), kind)


def decode(body: bytes, kind: type[_T]) -> _T:
    """A body as a struct; none at all is one in which nothing is given. Raises `Malformed`, or `Rejected`."""
    body = body or b"{}"
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not UTF-8: byte {error.start} cannot be read") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _rejected(error, kind) from None
    except RecursionError:
        raise Malformed("the body is nested too deep") from None
    except msgspec.DecodeError as error:
        # A lone surrogate (`\ud800`) is JSON, though no text: only the item that holds it is at fault.
        return _decode_leniently(text, kind, str(error))


def _decode_leniently(text: str, kind: type[_T], why: str) -> _T:
    try:
        return msgspec.convert(json.loads(text, parse_constant=_no_constant), kind)
    except msgspec.ValidationError as error:
        raise _rejected(error, kind) from None
    except (ValueError, RecursionError):
        raise Malformed(f"the body is not JSON: {why}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _rejected(error: msgspec.ValidationError, kind: type) -> Rejected:
    text = str(error)
    place = _FIELD.search(text)
    named = _NAMED.search(text)
    field = ".".join(part for part in (place and place.group(1), named and named.group(1)) if part)
    return Rejected(f"{field or 'body'}: {_FIELD.sub('', text)}{choices_of(kind, field)}", field=field)


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the body has more than {limit_bytes:,} bytes, the limit of max_body_bytes", field="body")
