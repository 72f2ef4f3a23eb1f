"""Read and decode the JSON bodies of requests, within limits of size, time and memory."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread
from blake3 import blake3
from starlette.requests import ClientDisconnect, Request

from reverie.decoding import check_keys, describe, rejected
from reverie.errors import Malformed, Rejected, TooLarge, TooSlow, Unavailable, UnsupportedType
from server.caller import IDEMPOTENCY_HEADER

# A body is decoded in a thread if that takes longer than handing it over: 32 KiB take 0.1 ms.
INLINE_BYTES: Final = 32 * 1024
# How many large bodies are decoded at once. Each takes up to four times its size, plus the memory of its values.
_DECODERS: Final = 2
# A value takes 16 to 250 bytes as a Python object, but only two in a body: 4 MiB of `[],` would become 120 MB.
MAX_VALUES: Final = 400_000
# The largest body of a call; those with files may have 17 MiB.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
# The total size of the bodies that are read at once: 16 of the largest. Decoding one takes up to four times its size.
BODY_MEMORY_BYTES: Final = 64 * 1024 * 1024
# The time for a whole body to arrive: enough for the largest at 70 KB/s.
BODY_SECONDS: Final = 60.0
# A sender that pauses this long is gone, or is attacking the server.
_STALL_SECONDS: Final = 10.0
# A body that waits for others this long is refused instead.
_MEMORY_WAIT_SECONDS: Final = 10.0
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;|$)", re.IGNORECASE)
_NO_ESCAPE = re.compile(rb"[^\\]")
_PIECE_BYTES: Final = 256 * 1024

_T = TypeVar("_T")


class Busy(Unavailable):
    """The server has no room at the moment."""

    retry_after_seconds = 1


class BodyMemory:
    """Limits the bytes of the bodies that are read or decoded at once. For one thread: the event loop's.

    A body takes its bytes as they arrive, so a slow sender holds no more than it has sent. The oldest body always gets
    the bytes it needs: otherwise two bodies could wait for each other for ever.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.in_use_bytes = 0
        self._bodies: dict[object, int] = {}
        self._waiting: list[asyncio.Future[None]] = []

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], Awaitable[None]]]:
        """Yield the function that takes bytes for one body; they are given back at the end.

        The function raises `Busy` if other bodies do not give back enough bytes in time.
        """
        body = object()
        self._bodies[body] = 0
        try:
            yield partial(self._take, body)
        finally:
            self.in_use_bytes -= self._bodies.pop(body)
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                if not turn.done():
                    turn.set_result(None)

    async def _take(self, body: object, size: int) -> None:
        try:
            async with asyncio.timeout(_MEMORY_WAIT_SECONDS):
                while not self._fits(body, size):
                    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            raise Busy("the server is reading too many large bodies at the moment: try again") from None
        self.in_use_bytes += size
        self._bodies[body] += size

    def _fits(self, body: object, size: int) -> bool:
        return self.in_use_bytes + size <= self.limit_bytes or body is next(iter(self._bodies))


def _check_type(request: Request) -> None:
    """Raise `UnsupportedType` for a body that a form of a web page can send, or anything else that is not JSON."""
    content_type = request.headers.get("content-type")
    if content_type is not None and not _JSON_TYPE.match(content_type.strip()):
        raise UnsupportedType(
            f"the body is {content_type[:80]!r}: send JSON, with the header Content-Type: application/json",
            field="content-type",
        )


class BodyReader:
    """Reads the bodies of one server's requests: at most `memory_bytes` at once, each within `seconds`."""

    def __init__(self, *, memory_bytes: int, seconds: float) -> None:
        self.memory = BodyMemory(memory_bytes)
        self._seconds = seconds
        self._decoders: CapacityLimiter | None = None

    async def decoded(
        self,
        request: Request,
        decode: Callable[[bytes], _T],
        *,
        limit_bytes: int,
        check_type: Callable[[Request], None] = _check_type,
    ) -> _T:
        """Return what `decode` makes of a request's body, whose type must pass `check_type`: by default only JSON does.

        Raises `TooLarge`, `TooSlow`, `UnsupportedType`, `Busy`, and what `decode` raises. A large body is decoded in a
        thread.
        """
        _check_announced(request, limit_bytes)
        with self.memory.holding() as take:
            body = await self._read(request, take, limit_bytes)
            if body:
                check_type(request)
            if len(body) <= INLINE_BYTES:
                return decode(body)
            if self._decoders is None:
                self._decoders = CapacityLimiter(_DECODERS)
            return await to_thread.run_sync(decode, body, limiter=self._decoders)

    async def _read(self, request: Request, take: Callable[[int], Awaitable[None]], limit_bytes: int) -> bytes:
        body = bytearray()
        stream = request.stream()
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    async with asyncio.timeout(_STALL_SECONDS):
                        chunk = await anext(stream, None)
                    if chunk is None:
                        break
                    if len(body) + len(chunk) > limit_bytes:
                        raise _too_large(limit_bytes)
                    await take(len(chunk))
                    body += chunk
        except TimeoutError:
            raise TooSlow("the body of the request did not arrive in time: send it again") from None
        except ClientDisconnect:
            raise TooSlow("the connection was closed before the body had arrived: send it again") from None
        request.scope["reverie.body_bytes"] = len(body)
        if IDEMPOTENCY_HEADER in request.headers:  # a megabyte takes half a millisecond
            request.scope["reverie.body_hash"] = blake3(body).hexdigest()
        return bytes(body)


def body_bytes_of(request: Request) -> int:
    """Return the size of the body that was read for a request; 0 for none."""
    return int(request.scope.get("reverie.body_bytes", 0))


def body_hash_of(request: Request) -> str:
    """Return a hash of the body that was read for a request with a key; empty for none."""
    return str(request.scope.get("reverie.body_hash", ""))


def _check_announced(request: Request, limit_bytes: int) -> None:
    """Raise `TooLarge` for a body that is announced to be larger than the limit."""
    content_length = request.headers.get("content-length", "")
    if content_length.isdecimal() and (len(content_length) > 18 or int(content_length) > limit_bytes):
        raise _too_large(limit_bytes)


def decode(body: bytes, kind: type[_T]) -> _T:
    """Return a body as a struct; an empty body gives no arguments. Raises `Malformed`, or `Rejected` with the field."""
    body = body or b"{}"
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not UTF-8: byte {error.start} cannot be read") from None
    check_values(body)
    check_keys(body, name="body")
    describe(kind)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise rejected(error, kind, name="body", raw=_object(body)) from None
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        # A lone surrogate (`\ud800`) is valid JSON but not valid text: only the item that contains it is rejected.
        return _decode_leniently(text, kind, str(error))
    except ValueError as error:  # a whole number of thousands of digits
        raise Malformed(f"the body has a number that is too large: {str(error)[:80]}") from None


def check_values(body: bytes) -> None:
    """Raise `Rejected` if a body has more values than fit into the memory that is reserved for it."""
    if _marks(body) > MAX_VALUES and _bare_marks(body) > MAX_VALUES:  # most marks may be inside strings
        raise Rejected(f"the body has more than {MAX_VALUES:,} values: send it in parts", field="body")


def _marks(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{")))


def _bare_marks(body: bytes) -> int:
    """Count the marks outside strings.

    It works in pieces of about a millisecond each: one search of 8 MB would hold the interpreter, and so the event
    loop, for 40 ms.
    """
    count, start, inside = 0, 0, False
    while start < len(body):
        # A piece does not end in the middle of an escape.
        end = _NO_ESCAPE.search(body, start + _PIECE_BYTES - 1)
        piece = body[start : end.end() if end else len(body)]
        parts = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        count += _marks(b"".join(parts[inside::2]))
        inside ^= len(parts) % 2 == 0
        start += len(piece)
    return count


def _object(body: bytes) -> dict[str, Any]:
    """Return the undecoded body, from which errors quote the invalid value; empty if it cannot be decoded."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
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
    return TooLarge(f"the body has more than {limit_bytes:,} bytes, the limit of a request", field="body")
