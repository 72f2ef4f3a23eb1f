"""/pipeline: what operators watch, live by server-sent events, with the curves of the last day."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import anyio
import psutil
from fastapi import Response
from starlette.responses import StreamingResponse

from reverie.clock import to_micros
from reverie.errors import ReverieError
from reverie.pipeline.calls import GetStatus
from reverie.pipeline.status import PipelineStatus
from server.page.charts import Curve, curves
from server.page.pages import Pages
from server.page.rendering import PAGE_HEADERS
from server.page.visits import Visit
from storage.pipeline.samples import MINUTE_MICROS, PipelineSample

# How often the page is told of changes.
_TICK_SECONDS: Final = 2.0
# How soon an open page notices that the server is stopping, so that it does not delay the end.
_LOOK_SECONDS: Final = 0.2
# The browser connects again after this, with its cookie: so a token that was revoked is noticed within a minute even
# if nothing happens.
_STREAM_SECONDS: Final = 50.0
_RETRY_MILLISECONDS: Final = 2_000
_STREAM_HEADERS: Final = {**PAGE_HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

pages = Pages()


@dataclass(frozen=True, slots=True)
class _Figures:
    """What the page shows: the status, and what this process knows of its machine and of the last day."""

    status: PipelineStatus
    rate: float | None
    disk_free_bytes: int
    disk_size_bytes: int
    memory_bytes: int
    curves: list[Curve]


@pages.get("/pipeline", has_place=False)
async def _pipeline(visit: Visit) -> Response:
    return visit.page("pipeline.html", figures=await _figures(visit))


@pages.get("/pipeline/events", has_place=False)
async def _events(visit: Visit) -> Response:
    first = await _event(visit)  # before the stream: what the token lacks is an answer of its own
    return StreamingResponse(_stream(visit, first), media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _stream(visit: Visit, event: str) -> AsyncIterator[str]:
    """Yield the page's figures every few seconds, until the server stops, the token is worth nothing, or time is up."""
    yield f"retry: {_RETRY_MILLISECONDS}\n\n"
    yield event
    with anyio.move_on_after(_STREAM_SECONDS):
        while await _passed(visit, _TICK_SECONDS):
            try:
                await visit.check_login()
                yield await _event(visit)
            except ReverieError:  # the next connection says what it is
                return


async def _passed(visit: Visit, seconds: float) -> bool:
    """Wait; return False if the server begins to stop meanwhile."""
    for _ in range(round(seconds / _LOOK_SECONDS)):
        if visit.services.stopping.is_set():
            return False
        await anyio.sleep(_LOOK_SECONDS)
    return True


async def _event(visit: Visit) -> str:
    text = visit.text("parts/pipeline_figures.html", figures=await _figures(visit))
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: figures\n{lines}\n"


async def _figures(visit: Visit) -> _Figures:
    """Return the figures. Raises `Forbidden` for a token without the scope."""
    status = await visit.send(GetStatus())
    return await visit.services.threads.run(lambda: _read_figures(visit, status))


def _read_figures(visit: Visit, status: PipelineStatus) -> _Figures:
    runtime, now = visit.services.runtime, to_micros(status.at)
    try:
        samples = runtime.stores.pipeline_samples().last_day(now=now)
    except ReverieError:  # the status says what is wrong with the database
        samples = []
    disk = shutil.disk_usage(runtime.settings.data)
    return _Figures(
        status=status,
        rate=_rate(samples, status, now),
        disk_free_bytes=disk.free,
        disk_size_bytes=disk.total,
        memory_bytes=psutil.Process().memory_info().rss,
        curves=curves(samples, minute=now // MINUTE_MICROS),
    )


def _rate(samples: list[PipelineSample], status: PipelineStatus, now: int) -> float | None:
    """Return the items a second since a minute or two ago; None if that is not known."""
    earlier = [one for one in samples if one.minute < now // MINUTE_MICROS]
    if status.broker == "down" or not earlier or earlier[-1].accepted > status.inbox.accepted:
        return None
    seconds = now / 1_000_000 - 60 * earlier[-1].minute
    return (status.inbox.accepted - earlier[-1].accepted) / seconds
