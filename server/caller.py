"""Who asks, and for which workspace: read from headers, which carry text as percent-encoded UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from fastapi import Request

from reverie.checks import check_agent, check_session, check_trace, check_workspace
from reverie.errors import Rejected

AGENT_HEADER: Final = "X-Reverie-Agent"
WORKSPACE_HEADER: Final = "X-Reverie-Workspace"
TRACE_HEADER: Final = "X-Reverie-Trace"

# SQLite counts in 64 bits; nothing of ours comes near.
_HIGHEST: Final = 2**53
LONGEST_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that a request speaks for, its workspace, and the trace id of the request."""

    agent: str
    workspace: str
    trace: str


def caller_of(request: Request, *, workspace: str) -> Caller:
    """Who asks; `workspace` is the one where none is named. Raises `Rejected` without an agent."""
    if AGENT_HEADER not in request.headers:
        raise Rejected(f"the header {AGENT_HEADER} must name the agent", field="agent")
    agent = check_agent(_header(request, AGENT_HEADER, "agent"))
    return Caller(agent, workspace_of(request, default=workspace), trace_of(request))


def workspace_of(request: Request, *, default: str | None) -> str:
    """The workspace that a request names, else the default; without one, naming it is a must."""
    if WORKSPACE_HEADER in request.headers:
        return check_workspace(_header(request, WORKSPACE_HEADER, "workspace"))
    if default is None:
        raise Rejected(f"the header {WORKSPACE_HEADER} must name the workspace", field="workspace")
    return default


def trace_of(request: Request) -> str:
    """The trace id that was bound to the request when it came in."""
    return str(request.scope.get("reverie.trace", ""))


def trace_from(raw: bytes | None) -> str:
    """The trace id in a header, or a new one. Raises `Rejected` for what is none."""
    return check_trace(decoded(raw or b"", "trace"))


def session_from(encoded: str) -> str:
    """The session id of a path segment, which is percent-encoded."""
    return check_session(decoded(encoded.encode(), "session"))


def letter_from(encoded: str) -> int:
    """The number of a dead letter in a path."""
    return _number("id", encoded, lowest=1, highest=_HIGHEST)


def page_of(request: Request, *, limit: int, others: tuple[str, ...] = ()) -> tuple[int, int]:
    """Limit and offset of a list. Raises `Rejected` for a parameter that does not exist."""
    query = query_of(request, ("limit", "offset", *others))
    return (
        _number("limit", query.get("limit", str(limit)), lowest=1, highest=LONGEST_PAGE),
        _number("offset", query.get("offset", "0"), lowest=0, highest=_HIGHEST),
    )


def number_of(request: Request, name: str, *, default: int, lowest: int, highest: int) -> int:
    """One parameter after the question mark, a whole number. Raises `Rejected`."""
    return _number(name, request.query_params.get(name, str(default)), lowest=lowest, highest=highest)


def query_of(request: Request, known: tuple[str, ...] = ()) -> Mapping[str, str]:
    """The parameters after the question mark. Raises `Rejected` for one that does not exist."""
    for name in request.query_params:
        if name not in known:
            raise Rejected(f"unknown parameter {name[:80]!r}; there are: {', '.join(known) or 'none'}", field=name[:80])
    return request.query_params


def decoded(raw: bytes, field: str) -> str:
    """Percent-encoded, or plain, UTF-8 as text."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Rejected(f"{field} is not UTF-8: percent-encode its bytes", field=field) from None


def _header(request: Request, name: str, field: str) -> str:
    return decoded(request.headers[name].encode("latin-1"), field)


def _number(field: str, text: str, *, lowest: int, highest: int) -> int:
    # Not isdecimal(): it takes digits of every script. The length keeps int() cheap.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and lowest <= int(text) <= highest):
        raise Rejected(f"{field} must be a whole number from {lowest:,} to {highest:,}", field=field)
    return int(text)
