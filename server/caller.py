"""Read the caller of a request from its token and its headers: agent, workspace, user and trace id.

Headers are percent-encoded UTF-8. They only narrow the rights of the token: a header that contradicts it is refused,
and the error names only the missing right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from memory.trust.tokens import OPERATOR, Principal
from reverie.checks import check_agent, check_label, check_trace, check_workspace
from reverie.clock import new_id
from reverie.errors import Forbidden, Rejected
from reverie.tracing import parse_traceparent

AGENT_HEADER: Final = "X-Reverie-Agent"
WORKSPACE_HEADER: Final = "X-Reverie-Workspace"
USER_HEADER: Final = "X-Reverie-User"
TRACE_HEADER: Final = "X-Reverie-Trace"

IDEMPOTENCY_HEADER: Final = "Idempotency-Key"

CALLER_HEADERS: Final = (AGENT_HEADER, WORKSPACE_HEADER, USER_HEADER, TRACE_HEADER, IDEMPOTENCY_HEADER)

# Headers that identify the caller, the target and the page of origin. If such a header comes twice, one proxy takes the
# first value and another the last, so a caller who can add a header could ask as somebody else.
_DECIDING: Final = frozenset({b"authorization", b"cookie", b"host", b"origin", b"sec-fetch-site", b"content-type"})
_DECIDING_PREFIXES: Final = (b"x-reverie-", b"idempotency-", b"mcp-")

# What a call is about, and so which headers it needs: an agent in a workspace, a whole workspace, or the server.
Subject: TypeAlias = Literal["agent", "workspace", "server"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that a request is for, its workspace, the trace id of the request, and who makes it.

    `user` is the end user that the call is limited to, by its token or a header; None for any. `origin` is the address
    that the request came from, empty for calls within this process; `request` the key of the request and its
    repetitions, empty if the client sent none. With `notes_recalls` false, results are not recorded as recalled.
    """

    agent: str
    workspace: str
    trace: str
    principal: Principal = OPERATOR
    user: str | None = None
    origin: str = ""
    request: str = ""
    notes_recalls: bool = True


def caller_of(request: Request, *, subject: Subject, workspace: str) -> Caller:
    """Return the caller of a request; `workspace` is the default where neither token nor header names one.

    Raises `Rejected` for a missing or invalid header, and `Forbidden` for one that contradicts the token.
    """
    principal = principal_of(request)
    agent = _agent(request, principal) if subject == "agent" else ""
    header = required_header(subject, request.method)
    if header == WORKSPACE_HEADER and header not in request.headers:
        raise Rejected(f"the header {header} must name the {subject}", field=subject)
    workspace = principal.workspace or workspace
    if WORKSPACE_HEADER in request.headers:
        workspace = check_workspace(_header(request, WORKSPACE_HEADER, "workspace"))
    if not principal.reaches_workspace(workspace):
        raise lacking("workspace")
    user = principal.user
    if USER_HEADER in request.headers:
        user = check_label("user", _header(request, USER_HEADER, "user"), required=True)
    if principal.user not in (None, user):
        raise lacking("user")
    origin = str(request.scope.get("reverie.origin", ""))
    return Caller(agent, workspace, trace_of(request), principal, user, origin)


def principal_of(request: Request) -> Principal:
    """Return who makes a request, as the gate has noted it."""
    principal: Principal = request.scope.get("reverie.principal", OPERATOR)
    return principal


def check_sent_once(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise `Rejected` if a header that identifies the caller or the target was sent twice."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen:
            shown = name.decode("latin-1").title()
            raise Rejected(f"the header {shown} was sent more than once: send it once", field=shown)
        if name in _DECIDING or name.startswith(_DECIDING_PREFIXES):
            seen.add(name)


def lacking(right: Literal["workspace", "agent", "user"]) -> Forbidden:
    """Return the error for a call outside the agent, workspace or user that a token is bound to."""
    return Forbidden(f"the token is not for this {right}", field=right)


def _agent(request: Request, principal: Principal) -> str:
    """Return the agent that a request names, or else the only one of its token."""
    if AGENT_HEADER in request.headers:
        agent = check_agent(_header(request, AGENT_HEADER, "agent"))
    elif principal.agents is not None and len(principal.agents) == 1:
        (agent,) = principal.agents
    else:
        raise Rejected(f"the header {AGENT_HEADER} must name the agent", field="agent")
    if not principal.reaches_agent(agent):
        raise lacking("agent")
    return agent


def required_header(subject: Subject, method: str) -> str | None:
    """Return the header that a call must have, if any.

    A call that changes a whole workspace must name it, so that `default` is not deleted by mistake.
    """
    if subject == "workspace" and method != "GET":
        return WORKSPACE_HEADER
    return AGENT_HEADER if subject == "agent" else None


def trace_of(request: Request) -> str:
    """Return the trace id that the gate gave the request."""
    return str(request.scope.get("reverie.trace", ""))


def trace_from(raw: bytes | None, traceparent: bytes | None = None) -> str:
    """Return the trace id in a header, else the W3C `traceparent`, else a new id. Raises `Rejected` for an invalid id.

    An invalid `traceparent` is ignored, as its standard demands.
    """
    if raw:
        return check_trace(decoded(raw, "trace"))
    context = parse_traceparent(traceparent.decode("latin-1")) if traceparent else None
    return new_id() if context is None else context.traceparent


def query_of(
    request: Request, known: tuple[str, ...] = (), sequences: frozenset[str] = frozenset()
) -> dict[str, str | list[str]]:
    """Return the query parameters, those in `sequences` as lists. Raises `Rejected` for an unknown one."""
    decoded(request.scope["query_string"], "the query string")  # it is decoded with other characters for wrong bytes
    query = request.query_params
    for name in query:
        if name not in sequences and len(query.getlist(name)) > 1:
            raise Rejected(f"the parameter {name[:80]!r} was sent more than once: send it once", field=name[:80])
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
    if "," in request.headers[name]:  # a proxy makes one header of two by a comma
        raise Rejected(f"the header {name} has a comma: send one {field}, a comma in its name as %2C", field=field)
    return decoded(request.headers[name].encode("latin-1"), field)
