"""/v1/status, /healthz and /metrics: how it is, for people, for probes, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from reverie.errors import Unavailable
from reverie.pipeline.status import PipelineStatus
from server.answers import answer
from server.caller import TRACE_HEADER, query_of
from server.openapi import operation
from server.services import Services


def routes(services: Services) -> APIRouter:
    """The routes of whoever looks after the process."""
    router = APIRouter(tags=["operations"])

    @router.get("/v1/status", openapi_extra=operation(PipelineStatus, headers=(TRACE_HEADER,)))
    async def get_status(request: Request) -> Response:
        """The state of the pipeline. Answers without a broker too, and says so."""
        query_of(request)
        return answer(await services.threads.run(services.status))

    @router.get("/healthz", include_in_schema=False)
    async def get_health() -> Response:
        """Whether this process answers and reaches the broker; no details."""

        def work() -> bool:
            try:
                return services.runtime.inbox.now_micros() > 0
            except Unavailable:
                return False

        well = await services.threads.run(work)
        return Response("ok\n" if well else "not ok\n", status_code=200 if well else 503, media_type="text/plain")

    @router.get("/metrics", include_in_schema=False)
    async def get_metrics() -> Response:
        """Measurements in Prometheus' own form."""
        return Response(await services.threads.run(services.metrics.text), media_type=CONTENT_TYPE_LATEST)

    return router
