"""`/mcp`: streamable HTTP without sessions. Each request brings its token, and the server keeps nothing between two.

Clients of the specification of 2026-07-28 send single requests anyway. Clients of 2025-11-25 and before first ask for
a session; they get none, and their requests are answered all the same. So a revoked token is refused from the next
request on, no client can see data of another, and a restart of the server interrupts no client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from reverie.contract import DEFAULT_AGENT
from reverie.decoding import check_keys
from reverie.errors import Rejected, ReverieError
from server.bodies import check_values
from server.caller import AGENT_HEADER, trace_of
from server.endpoints import BoundToRequest, Endpoint
from server.gate import MCP_PATH
from server.mcp import Bound, of_request
from server.responses import error_response
from server.services import Services

if TYPE_CHECKING:
    from server.mcp.building import MemoryServer

# Further headers that clients in web pages send.
MCP_HEADERS: Final = ("Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id", "Last-Event-ID")
# A message holds one memory or one question. The package decodes it in the event loop: 1 MiB takes 10 ms.
MAX_BODY_BYTES: Final = 1024 * 1024


class McpEndpoint:
    """The ASGI application of `/mcp`. The package `mcp` is imported, in a thread, with the first request.

    `build` returns the MCP server. `/mcp?tools=all` has all tools.
    """

    path: Final = MCP_PATH

    def __init__(self, services: Services, endpoints: Iterable[Endpoint]) -> None:
        self.build: Callable[..., MemoryServer] = _build
        self._services = services
        self._endpoints = {endpoint.kind: endpoint for endpoint in endpoints}
        self._servers: dict[bool, MemoryServer] = {}
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["route"] = self  # its path is the label in the metrics
        request = Request(_with_agent(scope), receive)
        if request.method != "POST":
            # GET asks for a stream of events and DELETE ends a session: this server has neither.
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        try:
            body = await self._body(request)
            bound = BoundToRequest(self._services, self._endpoints, request)
            tools = request.query_params.get("tools", "usual")
            if tools not in ("usual", "all"):
                raise Rejected(f"tools is {tools[:80]!r}; it must be one of usual, all", field="tools")
        except ReverieError as error:
            await error_response(error, trace=trace_of(request))(scope, receive, send)
            return
        server = await self._built(all_tools=tools == "all")
        await self._serve(server, bound, request.scope, _replayed(body, receive), send)

    async def _body(self, request: Request) -> bytes:
        """Return the body. Like other routes, raises an error if it is too large, too slow or not JSON."""
        return await self._services.bodies.decoded(request, _checked, limit_bytes=MAX_BODY_BYTES)

    async def _serve(self, server: MemoryServer, bound: Bound, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # One manager for each request, so that its tasks end with the request. Host, origin and size are checked
        # already.
        manager = StreamableHTTPSessionManager(server.protocol, stateless=True, max_request_body_size=MAX_BODY_BYTES)
        token = of_request.set(bound)
        try:
            async with manager.run():
                await manager.handle_request(scope, receive, send)
        finally:
            of_request.reset(token)

    async def _built(self, *, all_tools: bool) -> MemoryServer:
        async with self._building:
            if all_tools not in self._servers:
                self._servers[all_tools] = await to_thread.run_sync(lambda: self.build(all_tools=all_tools))
            return self._servers[all_tools]


def _with_agent(scope: Scope) -> Scope:
    """Return the scope with the default agent, if neither header nor token names one: as on the command line."""
    name = AGENT_HEADER.lower().encode()
    principal = scope.get("reverie.principal")
    if any(header == name for header, _ in scope["headers"]) or (principal and principal.agents is not None):
        return scope
    return {**scope, "headers": [*scope["headers"], (name, DEFAULT_AGENT.encode())]}


def _checked(body: bytes) -> bytes:
    """Return a body as it is. Raises `Rejected` if it has too many values, or an object has a key twice."""
    check_values(body)
    check_keys(body, name="body")
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read already, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _build(*, all_tools: bool) -> MemoryServer:
    from server.mcp.building import build_server

    return build_server(of_request.get, all_tools=all_tools)
