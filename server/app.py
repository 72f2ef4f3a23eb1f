"""The HTTP application of one runtime: routes, error handlers and middleware; and the same calls without a server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from reverie.calls import Call, validated
from reverie.clock import new_id
from reverie.errors import ReverieError
from server import items, memories, pipeline, recall, scheduling, sessions, trust, upkeep
from server.authentication import Access, Authentication
from server.caller import CALLER_HEADERS, TRACE_HEADER, Caller
from server.endpoints import Endpoint
from server.gate import MCP_PATH, Gate
from server.mcp.endpoint import MCP_HEADERS, McpEndpoint
from server.openapi import docs_routes
from server.page import curation, timeline
from server.page import memories as memories_page
from server.page import pipeline as pipeline_page
from server.page.site import Site, site_routes
from server.responses import on_reverie_error
from server.services import Services
from worker.runtime import Runtime

_A = TypeVar("_A")

# The order matters: of two routes that match a path, the first is used.
_ROOMS: Final = (pipeline, recall, sessions, upkeep, memories, items, scheduling, trust)
_PAGES: Final = (memories_page, timeline, curation, pipeline_page)


def endpoints() -> Iterator[Endpoint]:
    """Yield the endpoints of all rooms."""
    for part in _ROOMS:
        yield from part.endpoints


def create_app(runtime: Runtime, *, access: Access) -> Starlette:
    """Return the application. Requests below /v1 need a token: a stored one, or one that `access` names.

    The caller closes `app.state.ledger`, and sets `app.state.stopping` when the server begins to stop.
    """
    app = Starlette()
    # A redirect for a trailing slash would change session ids that end with one.
    app.router.redirect_slashes = False
    services = Services(runtime)
    routes = app.router.routes
    for part in _ROOMS:
        routes.extend(part.endpoints.routes(services))
    routes.append(Route(MCP_PATH, McpEndpoint(services, endpoints()), include_in_schema=False))
    authentication = Authentication(
        services.token_checker, services.ledger, fixed=access.tokens, now=runtime.now, open=access.open
    )
    site = Site(services, endpoints(), authentication)
    routes.extend(site_routes(site, [part.pages for part in _PAGES]))
    app.add_exception_handler(ReverieError, on_reverie_error)
    app.add_exception_handler(HTTPException, site.on_http_error)
    services.metrics.counter(
        "reverie_authentication_failures",
        "Requests without a valid token.",
        lambda: authentication.failures.total,
    )
    app.state.ledger = services.ledger
    app.state.stopping = services.stopping
    if runtime.settings.web_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=runtime.settings.web_origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "traceparent", *CALLER_HEADERS, *MCP_HEADERS],
            expose_headers=[TRACE_HEADER, "Retry-After"],
        )
    app.add_middleware(
        Gate,
        authentication=authentication,
        local_names_only=access.local_names_only or access.open,
        metrics=services.metrics,
        tracing=runtime.tracing,
        allowed_origins=runtime.settings.web_origins,
    )
    routes.extend([*pipeline.probes(services), *docs_routes(list(endpoints()))])
    return app


class InProcess:
    """Answers calls on the data folder of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._services = Services(runtime)
        # The embedded broker, to which recalls are handed over, runs only beside a server.
        self._notes_recalls = runtime.settings.broker is not None

    @cached_property
    def _endpoints(self) -> dict[type[Call[Any]], Endpoint]:
        return {endpoint.kind: endpoint for endpoint in endpoints()}

    def send(self, call: Call[_A], *, agent: str, workspace: str) -> _A:
        """Return the response to a call of an agent in a workspace. Raises what the server would raise."""
        endpoint = self._endpoints[type(call)]
        caller = Caller(agent, workspace, new_id(), notes_recalls=self._notes_recalls)
        response: _A = endpoint.answer(self._services, caller, validated(call))
        return response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._services.runtime.close()
