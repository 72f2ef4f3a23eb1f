"""The HTTP application of one runtime: its routes, error handlers and middleware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from reverie import __version__
from reverie.errors import ReverieError
from server.authentication import Access, Authentication
from server.caller import CALLER_HEADERS, TRACE_HEADER
from server.docs_page import ASSETS, docs_page
from server.endpoints import Endpoint
from server.gate import MCP_PATH, Gate
from server.items import items
from server.mcp.endpoint import MCP_HEADERS, McpEndpoint
from server.memories import facts, memories, notes, transfer
from server.openapi import describe
from server.page.routes import site_router
from server.page.site import Site
from server.pipeline import dead_letters, messages, operations
from server.recall import context, recall
from server.recall import events as recall_events
from server.responses import on_reverie_error
from server.scheduling import notifications, reminders, schedules
from server.scheduling import runs as schedule_runs
from server.services import Services
from server.sessions import channels, coding_agents, scratchpads, sessions, summaries, workspaces
from server.sessions import lifecycle as session_life
from server.trust import erasures, exports, quotas, tokens
from server.upkeep import curation, jobs, notebooks
from worker.runtime import Runtime

# The order matters: of two routes that match a path, the first is used.
_ROOMS: Final = (
    messages,
    recall,
    context,
    recall_events,
    sessions,
    coding_agents,
    session_life,
    scratchpads,
    channels,
    workspaces,
    curation,
    summaries,
    dead_letters,
    operations,
    jobs,
    notebooks,
    memories,
    transfer,
    facts,
    notes,
    items,
    schedules,
    schedule_runs,
    reminders,
    notifications,
    erasures,
    exports,
    tokens,
    quotas,
)


def endpoints() -> Iterator[Endpoint]:
    """Yield the endpoints of all rooms."""
    for part in _ROOMS:
        yield from part.endpoints


def create_app(runtime: Runtime, *, token: str | None = None, access: Access | None = None) -> FastAPI:
    """Return the application. Requests below /v1 need a token: a stored one, or one that `access` names.

    `token` stands for an access with this token alone; without both, everyone who reaches the server may do everything.
    The caller closes `app.state.ledger`, and sets `app.state.stopping` when the server begins to stop.
    """
    access = access or Access(tokens={"operator": token} if token else {}, open=token is None)
    # A redirect for a trailing slash would change session ids that end with one.
    # Swagger UI is loaded from this server. ReDoc would load something from elsewhere in any case.
    app = FastAPIOffline(
        title="Reverie",
        version=__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        static_url=ASSETS,
    )
    services = Services(runtime)
    for part in _ROOMS:
        app.include_router(part.endpoints.router(services))
    app.router.routes.append(Route(MCP_PATH, McpEndpoint(services, endpoints()), include_in_schema=False))
    authentication = Authentication(
        services.token_checker, services.ledger, fixed=access.tokens, now=runtime.now, open=access.open
    )
    site = Site(services, endpoints(), authentication)
    app.include_router(site_router(site))
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
    app.include_router(operations.probes(services))
    app.include_router(docs_page(app.title, "/openapi.json"))
    describe(app, [endpoint.kind for endpoint in endpoints()])
    return app
