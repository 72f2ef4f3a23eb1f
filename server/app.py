"""The HTTP application over one runtime: the routes, and what stands around them."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from reverie import __version__
from reverie.errors import ReverieError
from server import (
    channels,
    context,
    curation,
    dead_letters,
    facts,
    memories,
    messages,
    notebooks,
    notes,
    notifications,
    operations,
    recall,
    recall_events,
    reminders,
    schedule_runs,
    schedules,
    scratchpads,
    session_life,
    sessions,
    summaries,
)
from server.answers import on_http_error, on_reverie_error
from server.gate import Gate
from server.openapi import describe
from server.services import Services
from worker.runtime import Runtime


def create_app(runtime: Runtime, *, token: str | None = None) -> FastAPI:
    """The application. With a token, every request below /v1 must carry it; without one, only loopback is served."""
    # Redirects for a slash at the end would lead session ids astray.
    app = FastAPI(title="Reverie", version=__version__, redirect_slashes=False)
    services = Services(runtime)
    for part in (
        messages,
        recall,
        context,
        recall_events,
        sessions,
        session_life,
        scratchpads,
        channels,
        curation,
        summaries,
        dead_letters,
        operations,
        notebooks,
        memories,
        facts,
        notes,
        schedules,
        schedule_runs,
        reminders,
        notifications,
    ):
        app.include_router(part.routes(services))
    app.add_exception_handler(ReverieError, on_reverie_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_middleware(Gate, token=token, metrics=services.metrics)
    describe(app)
    return app
