"""The outermost middleware: checks host and token, sets the trace id, restores raw paths, measures and catches errors.

It is plain ASGI instead of a framework's middleware because every recall passes through it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from typing import Final
from urllib.parse import quote

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reverie.clock import new_id
from reverie.errors import Rejected, Unavailable
from reverie.problems import Problem, Unauthorised, problem_of
from server.caller import TRACE_HEADER, trace_from
from server.metrics import Metrics
from server.responses import internal_problem, problem_response

_TRACE: Final = TRACE_HEADER.lower().encode()

log = structlog.get_logger(__name__)


class Gate:
    """Wraps the application. Without a token it accepts only requests whose host is a loopback name."""

    def __init__(self, app: ASGIApp, *, token: str | None, metrics: Metrics) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode() if token else None
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        refused: Problem | None = None
        try:
            trace = trace_from(headers.get(_TRACE))
        except Rejected as error:
            trace = new_id()
            refused = problem_of(error, trace=trace)
        scope["reverie.trace"] = trace
        refused = refused or self._refused(scope["path"], headers, trace)
        _keep_raw_path(scope)
        with structlog.contextvars.bound_contextvars(trace_id=trace):
            await self._serve(scope, receive, _Reply(send, trace), refused)

    async def _serve(self, scope: Scope, receive: Receive, reply: _Reply, refused: Problem | None) -> None:
        started = time.perf_counter()
        try:
            if refused is not None:
                await problem_response(refused)(scope, receive, reply)
            else:
                await self._app(scope, receive, reply)
        except asyncio.CancelledError:  # the process is stopping and this call has waited for too long
            if reply.status is None:
                error = Unavailable("the server is stopping: what was accepted before is safe, try again")
                await problem_response(problem_of(error, trace=reply.trace))(scope, receive, reply)
        except Exception:  # the boundary of the request: callers never see a traceback
            log.exception("request_crashed", method=scope["method"], route=_route(scope))
            if reply.status is None:
                await problem_response(internal_problem(reply.trace))(scope, receive, reply)
        finally:
            self._metrics.observe(scope["method"], _route(scope), reply.status or 500, time.perf_counter() - started)

    def _refused(self, path: str, headers: dict[bytes, bytes], trace: str) -> Problem | None:
        if self._token is None:
            # Otherwise a web page whose name resolves to 127.0.0.1 (DNS rebinding) could read everything.
            if not _is_loopback_name(headers.get(b"host", b"").decode("latin-1")):
                error = Rejected(
                    "without a token this server answers only as localhost, 127.0.0.1 or [::1]", field="host"
                )
                return problem_of(error, trace=trace)
            return None
        if path.startswith("/v1/") and not hmac.compare_digest(headers.get(b"authorization", b""), self._token):
            return problem_of(Unauthorised("send the token: Authorization: Bearer ...", field="token"), trace=trace)
        return None


class _Reply:
    """Sends the response with the trace id in a header, and records its status."""

    def __init__(self, send: Send, trace: str) -> None:
        self._send = send
        self.trace = trace
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], (_TRACE, quote(self.trace, safe="").encode())]}
        await self._send(message)


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


def is_loopback(host: str) -> bool:
    """Return whether an address or a name is a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
