"""Trace ids, and the W3C trace context that stands in one: how traces go on from an agent through the queue.

A trace id is any short text, by which logs are searched. One in the form of a `traceparent` header also names the span
that the work belongs to. Every other one stands for a trace of its own, whose W3C id follows from the text.
"""

from __future__ import annotations

import re
import sys
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


class TraceContext(NamedTuple):
    """A W3C trace id (32 hexadecimal digits), the id of the parent span (16, or empty), and whether it is sampled."""

    trace_id: str
    parent_id: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The context as the value of a `traceparent` header; only of a context with a parent."""
        return f"00-{self.trace_id}-{self.parent_id}-{'01' if self.sampled else '00'}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context in a `traceparent` header; None if it is not valid, and then has to be ignored."""
    found = _TRACEPARENT.fullmatch(text.strip())
    if found is None:
        return None
    version, trace_id, parent_id, flags, more = found.groups()
    # Later versions may add fields; ff is no version.
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return TraceContext(trace_id, parent_id, bool(int(flags, 16) & _SAMPLED))


def trace_context(trace: str) -> TraceContext:
    """Return the context of a trace id: a UUID is its own W3C id, of another text it is a hash."""
    found = parse_traceparent(trace)
    if found is not None:
        return found
    try:
        trace_id = UUID(trace).hex
    except ValueError:
        trace_id = blake2b(trace.encode(), digest_size=16).hexdigest()
    return TraceContext(trace_id, "", sampled=True)


def current_traceparent() -> str:
    """Return the current span of a program that uses OpenTelemetry, as a `traceparent`; empty if there is none.

    OpenTelemetry is not imported: a program that does not use it has no span.
    """
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return ""
    span = module.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    sampled = bool(span.trace_flags & _SAMPLED)
    return TraceContext(f"{span.trace_id:032x}", f"{span.span_id:016x}", sampled).traceparent
