"""Traces for OpenTelemetry: from the agent's span through the queue to the index, over a real collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from adapters import tracing
from adapters.tracing import make_tracing
from reverie import Reverie
from reverie.errors import Rejected
from reverie.tracing import trace_context
from support.collector import Collector, running_collector
from support.http import running_server
from support.stages import run_stage_tasks
from worker.runtime import Runtime
from worker.settings import load_settings

STAGES = ("ingest_messages", "chunk_messages", "embed_chunks", "index_chunks")
SECRET = "the secret of the lighthouse"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as one:
        yield one


@pytest.fixture
def traced(make_runtime: Callable[..., Runtime], collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A runtime that sends its traces to the collector; they are there once it is closed."""
    monkeypatch.setattr(tracing, "_EXPORT_SECONDS", 60.0)  # the collector runs in this process
    return make_runtime(otlp_endpoint=collector.url)


def agent_tracer() -> Any:
    """Return the tracer of an agent that uses OpenTelemetry itself."""
    from opentelemetry.sdk.trace import TracerProvider

    return TracerProvider(shutdown_on_exit=False).get_tracer("agent")


def test_one_trace_leads_from_the_agents_span_to_the_index(
    traced: Runtime, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an agent with a span of its own, then its messages' request and stages are below it, in the same trace."""
    monkeypatch.setattr("memory.pipeline.embedding._INDEXED_AT_ONCE", 0)  # a few are indexed without a task
    with running_server(traced) as url, Reverie("ana", url=url) as memory:
        with agent_tracer().start_as_current_span("turn") as turn:
            memory.ingest("s", [{"role": "user", "content": SECRET}, {"role": "assistant", "content": "noted"}])
        run_stage_tasks(traced)
    traced.close()

    trace, parent = turn.get_span_context().trace_id, turn.get_span_context().span_id
    (request,) = collector.named("POST /v1/messages")
    assert request.trace_id == trace.to_bytes(16, "big")
    assert request.parent_span_id == parent.to_bytes(8, "big")
    for stage in STAGES:
        (span,) = collector.named(stage)
        assert (span.trace_id, span.parent_span_id) == (request.trace_id, request.span_id), stage
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert {resource["service.name"] for resource in collector.resources} == {"reverie"}
    assert not any(b"lighthouse" in body or b"ana" in body for body in collector.raw)


def test_the_trace_goes_on_where_the_agent_has_the_broker(
    traced: Runtime, collector: Collector, valkey_url: str, broker_prefix: str
) -> None:
    """Given a client that enqueues by itself, then the stages are directly below the agent's span."""
    memory = Reverie("ana", broker=valkey_url, prefix=broker_prefix)
    with memory, agent_tracer().start_as_current_span("turn") as turn:
        memory.ingest("s", {"role": "user", "content": SECRET})
    run_stage_tasks(traced)
    traced.close()

    (last,) = collector.named("embed_chunks")
    assert last.trace_id == turn.get_span_context().trace_id.to_bytes(16, "big")
    assert last.parent_span_id == turn.get_span_context().span_id.to_bytes(8, "big")


def test_recalls_and_contexts_are_traced_by_the_header(traced: Runtime, collector: Collector) -> None:
    """Given a traceparent over plain HTTP, then recall and context are spans of that trace."""
    headers = {"X-Reverie-Agent": "ana", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    with running_server(traced) as url, Reverie("ana", url=url) as memory:
        memory.ingest("s", {"role": "user", "content": SECRET})
        run_stage_tasks(traced)
        answered = httpx2.post(f"{url}/v1/recall", json={"query": "lighthouse"}, headers=headers)
        httpx2.post(f"{url}/v1/context", json={"session": "s"}, headers=headers)
    traced.close()

    for name in ("POST /v1/recall", "POST /v1/context"):
        (span,) = collector.named(name)
        assert span.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert span.parent_span_id.hex() == "00f067aa0ba902b7"
    (recall,) = collector.named("POST /v1/recall")
    assert trace_context(answered.headers["X-Reverie-Trace"]).parent_id == recall.span_id.hex()


def test_a_trace_id_of_ones_own_is_kept(traced: Runtime, collector: Collector) -> None:
    """Given an id to search logs by, then it stays what it is, and all its spans have the W3C id that follows."""
    with running_server(traced) as url, Reverie("ana", url=url) as memory:
        receipt = memory.ingest("s", {"role": "user", "content": SECRET}, trace="trace-me-1")
        run_stage_tasks(traced)
    traced.close()

    assert receipt.trace == "trace-me-1"
    spans = [*collector.named("POST /v1/messages"), *(one for stage in STAGES[:3] for one in collector.named(stage))]
    assert len(spans) == 4
    assert {span.trace_id.hex() for span in spans} == {trace_context("trace-me-1").trace_id}


def test_an_unsampled_trace_sends_nothing(traced: Runtime, collector: Collector) -> None:
    """Given a caller that does not sample, then neither its request nor the stages send a span."""
    unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    with running_server(traced) as url, Reverie("ana", url=url) as memory:
        memory.ingest("s", {"role": "user", "content": SECRET}, trace=unsampled)
        run_stage_tasks(traced)
    traced.close()

    assert collector.spans == []


def test_a_collector_that_is_away_disturbs_nothing(make_runtime: Callable[..., Runtime]) -> None:
    """Given no collector at the address, then messages are stored and found."""
    with running_collector() as gone:
        pass
    runtime = make_runtime(otlp_endpoint=gone.url)
    with running_server(runtime) as url, Reverie("ana", url=url) as memory:
        memory.ingest("s", {"role": "user", "content": SECRET})
        run_stage_tasks(runtime)
        assert [found.text for found in memory.recall("lighthouse").results] == [SECRET]


def test_without_an_endpoint_there_are_no_traces(runtime: Runtime) -> None:
    """Given no collector, then nothing is made, and trace ids are as ever."""
    assert runtime.tracing is None
    with running_server(runtime) as url:
        headers = {"X-Reverie-Agent": "ana", "traceparent": "nonsense"}
        answered = httpx2.get(f"{url}/v1/sessions", headers=headers)
    assert trace_context(answered.headers["X-Reverie-Trace"]).parent_id == ""


def test_the_standards_variable_names_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given OTEL_EXPORTER_OTLP_ENDPOINT, then it is the default; a setting wins, and nonsense is refused."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    assert load_settings().otlp_endpoint == "http://localhost:4318"
    assert load_settings(otlp_endpoint="http://other:4318").otlp_endpoint == "http://other:4318"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")
    with pytest.raises(Rejected, match="http://localhost:4318"):
        load_settings()


def test_without_the_packages_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a collector but no OpenTelemetry, then Reverie works without traces and says why."""
    monkeypatch.setattr("adapters.tracing.find_spec", lambda _: None)
    assert make_tracing("http://localhost:4318", process="server") is None
    printed = capsys.readouterr()
    assert "reverie-pipeline[tracing]" in printed.out + printed.err
