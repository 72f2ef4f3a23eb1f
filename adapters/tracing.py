"""Traces for OpenTelemetry: spans of requests and tasks, sent in the background to a collector by OTLP over HTTP.

The packages are an extra and are imported only where an endpoint is configured. Spans carry names, ids, counts and
durations, never content.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

import structlog

from reverie import __version__
from reverie.tracing import TraceContext, trace_context

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

SpanKind = Literal["server", "consumer"]
Attributes = Mapping[str, str | int | float | bool]

# Beyond this, spans of one task are not sent: a batch may have hundreds of traces.
MAX_SPANS_PER_TASK: Final = 100
# A collector that hangs must not keep a process from ending.
_EXPORT_SECONDS: Final = 5.0
_INSTALL: Final = "pip install 'reverie-pipeline[tracing]'"

log = structlog.get_logger(__name__)

_next_trace_id: ContextVar[int] = ContextVar("_next_trace_id", default=0)


class Tracing:
    """Makes spans and sends them. Thread-safe; make one in each process, after the fork."""

    def __init__(self, endpoint: str, *, process: str) -> None:
        """`endpoint` is the base URL of the collector: `/v1/traces` is added, as OTEL_EXPORTER_OTLP_ENDPOINT says.

        Raises ImportError if the packages are not installed.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class _Ids(RandomIdGenerator):
            """Gives a trace that begins here the id that follows from Reverie's own."""

            def generate_trace_id(self) -> int:
                return _next_trace_id.get() or int(super().generate_trace_id())

            def is_trace_id_random(self) -> bool:
                return False

        resource = Resource.create({"service.version": __version__, "service.instance.id": process})
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "reverie"}))
        # The runtime shuts it down. When the interpreter exits, its thread has ended already.
        self._provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("reverie", __version__)
        self._closing = threading.Lock()

    def start(self, name: str, trace: str, kind: SpanKind, *, started_ns: int | None = None) -> Span:
        """Begin a span of the trace, as a child of the span that the trace names, if any; the caller ends it.

        A trace that is not sampled gives a span that records nothing.
        """
        from opentelemetry.trace import SpanKind as Kind

        context = trace_context(trace)
        token = _next_trace_id.set(int(context.trace_id, 16))
        try:
            return self._tracer.start_span(
                name,
                context=_parent(context),
                kind=Kind.SERVER if kind == "server" else Kind.CONSUMER,
                start_time=started_ns,
            )
        finally:
            _next_trace_id.reset(token)

    def record(
        self,
        name: str,
        traces: Sequence[str],
        *,
        started_ns: int,
        ended_ns: int,
        attributes: Attributes,
        failed: bool = False,
    ) -> None:
        """Record a piece of work that belongs to several traces: one span in each of them. Times are since 1970."""
        for trace in traces[:MAX_SPANS_PER_TASK]:
            span = self.start(name, trace, "consumer", started_ns=started_ns)
            span.set_attributes(dict(attributes))
            if failed:
                mark_failed(span)
            span.end(ended_ns)

    def close(self) -> None:
        """Send what is left, for a few seconds at most, and end."""
        with self._closing:
            self._provider.shutdown()


def make_tracing(endpoint: str | None, *, process: str) -> Tracing | None:
    """Return the sender of traces of a process; None without an endpoint, or if its packages are not installed."""
    if not endpoint:
        return None
    try:
        found = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:  # not even the packages that contain them
        found = None
    if not found:
        log.warning("no_traces", advice=f"a collector is configured, but OpenTelemetry is not installed: {_INSTALL}")
        return None
    return Tracing(endpoint, process=process)


def mark_failed(span: Span) -> None:
    """Mark the work of a span as failed. The error is only in the log, not in the span, as it may quote content."""
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)


def traceparent_of(span: Span) -> str:
    """Return a span as a `traceparent`, for the work that is done for it elsewhere."""
    context = span.get_span_context()
    sampled = bool(context.trace_flags & 1)
    return TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}", sampled).traceparent


def _parent(context: TraceContext) -> Context:
    """Return the parent of a span; an empty context, without the current span, for the first of its trace."""
    from opentelemetry import trace
    from opentelemetry.context import Context

    if not context.parent_id:
        return Context()
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.sampled else trace.TraceFlags.DEFAULT)
    parent = trace.SpanContext(int(context.trace_id, 16), int(context.parent_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())
