"""Read the caller of a request from its headers: agent, workspace and trace id, as percent-encoded UTF-8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from fastapi import Request

from memory.trust.principals import OPERATOR, Principal
from reverie.checks import check_agent, check_trace, check_workspace
from reverie.errors import Rejected

AGENT_HEADER: Final = "X-Reverie-Agent"
WORKSPACE_HEADER: Final = "X-Reverie-Workspace"
TRACE_HEADER: Final = "X-Reverie-Trace"

# What a call is about, and so which headers it needs: an agent in a workspace, a whole workspace, or the server.
Subject: TypeAlias = Literal["agent", "workspace", "server"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that a request is for, its workspace, the trace id of the request, and who makes it.

    `user` is the end user that the call is limited to, by its token or a header; None for any. `origin` is the address
    that the request came from, empty for calls within this process.
    """

    agent: str
    workspace: str
    trace: str
    principal: Principal = OPERATOR
    user: str | None = None
    origin: str = ""


def caller_of(request: Request, *, subject: Subject, workspace: str) -> Caller:
    """Return the caller of a request; `workspace` is the default. Raises `Rejected` for a missing or invalid header."""
    header = required_header(subject, request.method)
    if header is not None and header not in request.headers:
        raise Rejected(f"the header {header} must name the {subject}", field=subject)
    agent = check_agent(_header(request, AGENT_HEADER, "agent")) if subject == "agent" else ""
    if WORKSPACE_HEADER in request.headers:
        workspace = check_workspace(_header(request, WORKSPACE_HEADER, "workspace"))
    return Caller(agent, workspace, trace_of(request))


def required_header(subject: Subject, method: str) -> str | None:
    """Return the header that a call must have, if any.

    A call that changes a whole workspace must name it, so that the default one is not deleted by mistake.
    """
    if subject == "workspace" and method != "GET":
        return WORKSPACE_HEADER
    return AGENT_HEADER if subject == "agent" else None


def trace_of(request: Request) -> str:
    """Return the trace id that the gate gave the request."""
    return str(request.scope.get("reverie.trace", ""))


def trace_from(raw: bytes | None) -> str:
    """Return the trace id in a header, or a new one. Raises `Rejected` for an invalid one."""
    return check_trace(decoded(raw or b"", "trace"))


def query_of(
    request: Request, known: tuple[str, ...] = (), sequences: frozenset[str] = frozenset()
) -> dict[str, str | list[str]]:
    """Return the query parameters, those in `sequences` as lists. Raises `Rejected` for an unknown one."""
    query = request.query_params
    for name in query:
        if name not in known:
            raise Rejected(f"unknown parameter {name[:80]!r}; known are: {', '.join(known) or 'none'}", field=name[:80])
    return {name: query.getlist(name) if name in sequences else query[name] for name in query}


def decoded(raw: bytes, field: str) -> str:
    """Return the text of percent-encoded or plain UTF-8. Raises `Rejected`."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Rejected(f"{field} is not UTF-8: percent-encode its bytes", field=field) from None


def _header(request: Request, name: str, field: str) -> str:
    return decoded(request.headers[name].encode("latin-1"), field)
