"""/v1/status, /healthz and /metrics: the status of the pipeline for people, probes and Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from reverie.calls import scope_of
from reverie.errors import Unavailable
from reverie.pipeline import calls
from reverie.pipeline.status import PipelineStatus
from server.authorisation import require_reach, require_scope
from server.caller import Caller, principal_of
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("operations")


@endpoints.serves(calls.GetStatus, subject="server")
def _get_status(services: Services, _: Caller, __: calls.GetStatus) -> PipelineStatus:
    return services.status()


def probes(services: Services) -> APIRouter:
    """Return the routes of probes and Prometheus, which are not part of the API."""
    router = APIRouter()

    def reaches_broker() -> bool:
        try:
            return services.runtime.inbox.now_micros() > 0
        except Unavailable:
            return False

    @router.get("/healthz", include_in_schema=False)
    async def get_health() -> Response:
        healthy = await services.threads.probe(reaches_broker)
        return Response("ok\n" if healthy else "not ok\n", status_code=200 if healthy else 503, media_type="text/plain")

    @router.get("/metrics", include_in_schema=False)
    async def get_metrics(request: Request) -> Response:
        principal = principal_of(request)
        require_scope(principal, scope_of(calls.GetStatus))
        require_reach(principal, "server")
        return Response(await services.threads.run(services.metrics.text), media_type=CONTENT_TYPE_LATEST)

    return router
