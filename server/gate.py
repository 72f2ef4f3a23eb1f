"""The outermost middleware: checks host and token, sets the trace id, restores raw paths, measures and catches errors.

It is plain ASGI instead of a framework's middleware because every recall passes through it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Final
from urllib.parse import quote

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapters.tracing import Tracing
from reverie.clock import new_id
from reverie.errors import Rejected, ReverieError, Unavailable
from server.authentication import Authentication
from server.caller import TRACE_HEADER, trace_from
from server.docs_page import HEADERS
from server.metrics import Metrics
from server.origins import check_no_upgrade, check_site
from server.responses import error_response, internal_problem, problem_response
from server.tracing import RequestSpan
from worker.access import is_loopback

_TRACE: Final = TRACE_HEADER.lower().encode()
MCP_PATH: Final = "/mcp"

log = structlog.get_logger(__name__)


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
        authorization = headers.get(b"authorization")
        check_no_upgrade(headers)
        if _is_preflight(scope, headers) and headers[b"origin"].decode("latin-1").lower() in self._allowed_origins:
            return  # browsers ask without a token whether they may send one
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
