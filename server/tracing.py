"""Spans of requests: one for each call, below the span of the caller, and above those of the tasks that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.tracing import Tracing, mark_failed, traceparent_of
from reverie.tracing import parse_traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class RequestSpan:
    """The span of one request. Without a collector it is nothing, and the trace id stays what it is."""

    def __init__(self, tracing: Tracing | None, trace: str, *, is_own: bool) -> None:
        """`is_own` says that the caller chose the trace id: then it is kept, so that logs can be searched by it."""
        self._span: Span | None = None if tracing is None else tracing.start("request", trace, "server")
        self.trace = trace
        if self._span is not None and (not is_own or parse_traceparent(trace) is not None):
            self.trace = traceparent_of(self._span)

    def end(self, method: str, route: str, status: int) -> None:
        """End the span with what became known of the request."""
        span = self._span
        if span is None:
            return
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
        if status >= 500:
            mark_failed(span)
        span.end()
