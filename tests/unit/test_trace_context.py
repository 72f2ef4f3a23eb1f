"""Trace ids as W3C trace contexts: what stands for which trace, and what is ignored."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reverie.checks import check_trace
from reverie.contract import MessagePayload
from reverie.tracing import parse_traceparent, trace_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("fe", False)])
def test_a_traceparent_names_trace_span_and_whether_it_is_sampled(flags: str, sampled: bool) -> None:
    """Given the header, then its parts are read; only the lowest bit says that it is sampled."""
    found = trace_context(f"00-{TRACE}-{SPAN}-{flags}")
    assert found == (TRACE, SPAN, sampled)
    assert found.traceparent == f"00-{TRACE}-{SPAN}-{'01' if sampled else '00'}"


def test_a_later_version_may_have_more_fields() -> None:
    """Given a version that does not exist yet, then what is known of it is read."""
    found = parse_traceparent(f"01-{TRACE}-{SPAN}-01-more")
    assert found is not None
    assert found.trace_id == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE[1:]}-{SPAN}-01",
    ],
)
def test_what_is_no_traceparent_is_ignored(text: str) -> None:
    """Given a header that breaks the standard, then it is none."""
    assert parse_traceparent(text) is None


def test_ids_of_earlier_payloads_stand_for_a_trace() -> None:
    """Given a UUID or a text of one's own, then each has one W3C id, without a parent."""
    assert trace_context("0190b5c2-6a3f-7c51-9d2e-1f0a4b8c6d7e") == ("0190b5c26a3f7c519d2e1f0a4b8c6d7e", "", True)
    mine = trace_context("trace-me-1")
    assert mine == trace_context("trace-me-1")
    assert len(mine.trace_id) == 32
    assert mine.trace_id != trace_context("trace-me-2").trace_id


def test_a_traceparent_fits_into_a_payload() -> None:
    """Given a traceparent as trace id, then it passes the check, and payloads keep their version."""
    text = f"00-{TRACE}-{SPAN}-01"
    payload = MessagePayload(
        id="1", agent="a", session="s", role="user", content="x", created_at=1, trace=check_trace(text)
    )
    assert (payload.trace, payload.v) == (text, 1)


def test_a_program_without_opentelemetry_does_not_import_it() -> None:
    """Given a client that makes a trace id, then OpenTelemetry is not loaded."""
    code = (
        "import sys; from reverie.checks import check_trace; check_trace(None);"
        " sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
