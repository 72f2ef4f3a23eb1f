"""Read and decode the JSON bodies of requests, up to a size limit."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

import msgspec
from fastapi import Request

from reverie.decoding import rejected
from reverie.problems import Malformed, TooLarge

_T = TypeVar("_T")


async def read_body(request: Request, *, limit_bytes: int) -> bytes:
    """Return a request's body. Raises `TooLarge`."""
    content_length = request.headers.get("content-length", "")
    if content_length.isdecimal() and int(content_length) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def decode(body: bytes, kind: type[_T]) -> _T:
    """Return a body as a struct; an empty body gives no arguments. Raises `Malformed`, or `Rejected` with the field."""
    body = body or b"{}"
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not UTF-8: byte {error.start} cannot be read") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise rejected(error, kind, name="body", raw=_object(body)) from None
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        # A lone surrogate (`\ud800`) is valid JSON but not valid text: only the item that contains it is rejected.
        return _decode_leniently(text, kind, str(error))


def _object(body: bytes) -> dict[str, Any]:
    """Return the undecoded body, from which errors quote the invalid value; empty if it is nested too deep."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _decode_leniently(text: str, kind: type[_T], why: str) -> _T:
    try:
        return msgspec.convert(json.loads(text, parse_constant=_no_constant), kind)
    except msgspec.ValidationError as error:
        raise rejected(error, kind, name="body") from None
    except (ValueError, RecursionError):
        raise Malformed(f"the body is not JSON: {why}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the body has more than {limit_bytes:,} bytes, the limit of max_body_bytes", field="body")
