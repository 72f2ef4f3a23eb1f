"""Who asks, and for which workspace: read from headers, which carry text as percent-encoded UTF-8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from fastapi import Request

from reverie.checks import check_agent, check_trace, check_workspace
from reverie.errors import Rejected

AGENT_HEADER: Final = "X-Reverie-Agent"
WORKSPACE_HEADER: Final = "X-Reverie-Workspace"
TRACE_HEADER: Final = "X-Reverie-Trace"

# Whom a call speaks for: an agent in a workspace, a workspace as a whole, or nobody in particular.
SpeaksFor: TypeAlias = Literal["agent", "workspace", "nobody"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that a request speaks for, its workspace, and the trace id of the request."""

    agent: str
    workspace: str
    trace: str


def caller_of(request: Request, *, speaks_for: SpeaksFor, workspace: str) -> Caller:
    """Return who calls; `workspace` is the default. Raises `Rejected` unless the headers name whom the call speaks for.

    A call about a whole workspace must name it: no default is deleted.
    """
    for header, field, needed in ((AGENT_HEADER, "agent", "agent"), (WORKSPACE_HEADER, "workspace", "workspace")):
        if speaks_for == needed and header not in request.headers:
            raise Rejected(f"the header {header} must name the {field}", field=field)
    agent = check_agent(_header(request, AGENT_HEADER, "agent")) if speaks_for == "agent" else ""
    if WORKSPACE_HEADER in request.headers:
        workspace = check_workspace(_header(request, WORKSPACE_HEADER, "workspace"))
    return Caller(agent, workspace, trace_of(request))


def trace_of(request: Request) -> str:
    """The trace id that was bound to the request when it came in."""
    return str(request.scope.get("reverie.trace", ""))


def trace_from(raw: bytes | None) -> str:
    """The trace id in a header, or a new one. Raises `Rejected` for what is none."""
    return check_trace(decoded(raw or b"", "trace"))


def query_of(
    request: Request, known: tuple[str, ...] = (), sequences: frozenset[str] = frozenset()
) -> dict[str, str | list[str]]:
    """Return the query parameters, those in `sequences` as lists. Raises `Rejected` for an unknown one."""
    query = request.query_params
    for name in query:
        if name not in known:
            raise Rejected(f"unknown parameter {name[:80]!r}; there are: {', '.join(known) or 'none'}", field=name[:80])
    return {name: query.getlist(name) if name in sequences else query[name] for name in query}


def decoded(raw: bytes, field: str) -> str:
    """Percent-encoded, or plain, UTF-8 as text."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Rejected(f"{field} is not UTF-8: percent-encode its bytes", field=field) from None


def _header(request: Request, name: str, field: str) -> str:
    return decoded(request.headers[name].encode("latin-1"), field)
