"""The outermost middleware: checks host, origin and token, sets the trace id, measures, and catches errors.

It is plain ASGI instead of a framework's middleware because every recall passes through it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapters.tracing import Tracing, mark_failed, traceparent_of
from reverie.clock import new_id
from reverie.errors import CrossSite, Rejected, ReverieError, Unavailable
from reverie.tracing import parse_traceparent
from server.authentication import Authentication
from server.caller import TRACE_HEADER, check_sent_once, trace_from
from server.metrics import Metrics
from server.openapi import HEADERS
from server.responses import error_response, internal_problem, problem_response
from worker.access import is_loopback

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = structlog.get_logger(__name__)


# Values of Sec-Fetch-Site: the request comes from a page of this server, or the user typed the address.
_OWN: Final = (b"same-origin", b"none")


def check_site(headers: Mapping[bytes, bytes], allowed_origins: Collection[str]) -> None:
    """Raise `CrossSite` if a page of another site makes the request, unless its origin is allowed.

    A browser adds the header Sec-Fetch-Site, or at least Origin, and a page cannot leave them out. Programs send
    neither.
    """
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").lower() in allowed_origins:
        return
    site = headers.get(b"sec-fetch-site")
    foreign = site not in _OWN if site is not None else origin is not None and not _is_own(origin, headers)
    if foreign:
        named = (origin or b"of another site").decode("latin-1")[:200]
        raise CrossSite(
            f"a web page ({named}) made this request, and pages of other sites are refused: to allow its origin, add it"
            " to the setting allowed_origins",
            field="origin",
        )


def check_no_upgrade(headers: Mapping[bytes, bytes]) -> None:
    """Raise `CrossSite` for a websocket: there are none, and a browser lets any page open one."""
    if b"websocket" in headers.get(b"upgrade", b"").lower() or b"sec-websocket-key" in headers:
        raise CrossSite("this server has no websockets", field="upgrade")


def _is_own(origin: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether an origin is this server, as the request names it. The scheme may differ behind a proxy."""
    try:
        host = urlsplit(origin.decode("ascii")).netloc.lower()
    except ValueError:
        return False
    return bool(host) and host == headers.get(b"host", b"").decode("latin-1").lower()


class RequestSpan:
    """The span of one request. Without a collector it records nothing, and the request keeps its trace id."""

    def __init__(self, tracing: Tracing | None, trace: str, *, is_own: bool) -> None:
        """`is_own` says that the caller chose the trace id, which is then kept for searching the logs."""
        self._span: Span | None = None if tracing is None else tracing.start("request", trace, "server")
        self.trace = trace
        if self._span is not None and (not is_own or parse_traceparent(trace) is not None):
            self.trace = traceparent_of(self._span)

    def end(self, method: str, route: str, status: int) -> None:
        """End the span with the attributes that became known during the request."""
        span = self._span
        if span is None:
            return
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
        if status >= 500:
            mark_failed(span)
        span.end()


_TRACE: Final = TRACE_HEADER.lower().encode()
MCP_PATH: Final = "/mcp"


class Gate:
    """Wraps the application. Paths below /v1, /mcp and /metrics need a token, unless the server is open.

    With `local_names_only`, requests without a token are accepted only if their host is a loopback name.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authentication: Authentication,
        local_names_only: bool,
        metrics: Metrics,
        tracing: Tracing | None = None,
        allowed_origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._tracing = tracing
        self._authentication = authentication
        self._local_names_only = local_names_only
        self._metrics = metrics
        self._allowed_origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":  # there are none: closing before accepting answers 403
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        refused: ReverieError | None = None
        try:
            trace = trace_from(headers.get(_TRACE), headers.get(b"traceparent"))
        except Rejected as error:
            trace = new_id()
            refused = error
        tracing = self._tracing if scope["path"].startswith("/v1/") or scope["path"] == MCP_PATH else None
        span = RequestSpan(tracing, trace, is_own=_TRACE in headers)
        scope["reverie.trace"] = trace = span.trace
        scope["reverie.origin"] = (scope.get("client") or ("",))[0]
        with structlog.contextvars.bound_contextvars(trace_id=trace):
            reply = _Reply(send, trace)
            try:
                await self._serve(scope, receive, reply, refused)
            finally:
                span.end(scope["method"], _route(scope), reply.status or 500)

    async def _serve(self, scope: Scope, receive: Receive, reply: _Reply, refused: ReverieError | None) -> None:
        started = time.perf_counter()
        try:
            refused = refused or await self._refusal(scope)
            _keep_raw_path(scope)
            if refused is not None:
                await error_response(refused, trace=reply.trace)(scope, receive, reply)
            else:
                await self._app(scope, receive, reply)
        except asyncio.CancelledError:  # the process is stopping and this call has waited for too long
            if reply.status is None:
                error = Unavailable("the server is stopping: what was accepted before is safe, try again")
                await error_response(error, trace=reply.trace)(scope, receive, reply)
        except Exception:  # the boundary of the request: callers never see a traceback
            log.exception("request_crashed", method=scope["method"], route=_route(scope))
            if reply.status is None:
                await problem_response(internal_problem(reply.trace))(scope, receive, reply)
        finally:
            self._metrics.observe(scope["method"], _route(scope), reply.status or 500, time.perf_counter() - started)

    async def _refusal(self, scope: Scope) -> ReverieError | None:
        """Note in the scope who makes the request; return why it is refused, or None if it is not."""
        try:
            await self._admit(scope, dict(scope["headers"]))
        except ReverieError as error:
            return error
        return None

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        check_sent_once(scope["headers"])
        authorization = headers.get(b"authorization")
        check_no_upgrade(headers)
        if _is_preflight(scope, headers) and headers[b"origin"].decode("latin-1").lower() in self._allowed_origins:
            return  # a preflight has no token: with it, a browser asks whether it may send one
        is_call = scope["path"].startswith("/v1/") or scope["path"] == MCP_PATH
        if is_call or scope["method"] not in ("GET", "HEAD"):
            check_site(headers, self._allowed_origins)
        protected = is_call or scope["path"] == "/metrics"
        if protected and (authorization is not None or not self._authentication.is_open):
            principal = await self._authentication.principal(authorization, origin=scope["reverie.origin"])
            scope["reverie.principal"] = principal
        elif self._local_names_only and not _is_loopback_name(headers.get(b"host", b"").decode("latin-1")):
            # Otherwise a web page whose name resolves to 127.0.0.1 (DNS rebinding) could read everything.
            raise Rejected("without a token this server answers only as localhost, 127.0.0.1 or [::1]", field="host")


class _Reply:
    """Sends the response with the trace id and the headers for browsers, and records its status."""

    def __init__(self, send: Send, trace: str) -> None:
        self._send = send
        self.trace = trace
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            sent = {name.lower() for name, _ in message["headers"]}
            added = [header for header in HEADERS if header[0] not in sent]
            trace = (_TRACE, quote(self.trace, safe="").encode())
            message = {**message, "headers": [*message["headers"], *added, trace]}
        await self._send(message)


def _is_preflight(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether a browser asks what a page of another origin may send."""
    asks = b"origin" in headers and b"access-control-request-method" in headers
    return asks and bool(scope["method"] == "OPTIONS")


def _keep_raw_path(scope: Scope) -> None:
    """Route by the path as it was sent: `%2F` in a session id must not become a separator."""
    raw = scope.get("raw_path")
    if raw and scope["path"].startswith("/v1/"):
        scope["path"] = raw.partition(b"?")[0].decode("latin-1")


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "other"))


def _is_loopback_name(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    return is_loopback(name.strip("[]"))
