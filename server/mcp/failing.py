"""Errors as a model reads them: what failed, and what to do about it."""

from __future__ import annotations

from typing import Final

from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from reverie.errors import Conflict, NotFound, Permanent, Rejected, ReverieError, Transient
from reverie.inert import inert
from reverie.problems import Forbidden, Limited, QuotaExceeded, TooManyFailures, Unauthorised

# From special to general: the first class that fits an error decides.
_ADVICE: Final[tuple[tuple[type[ReverieError], str], ...]] = (
    (
        Unauthorised,
        "Ask the user to set a valid token for this MCP server (REVERIE_TOKEN, or the header Authorization).",
    ),
    (
        Forbidden,
        "Trying again does not help. The user can give this connection a token that allows it: `reverie tokens create"
        " --scope read,write,forget,schedule`.",
    ),
    (TooManyFailures, ""),
    (QuotaExceeded, "Tell the user: something must be forgotten, or the operator must raise the quota."),
    (Limited, ""),
    (NotFound, "The ids of memories are those that recall and list_memories return."),
    (Conflict, ""),
    (Rejected, "Correct the argument and call the tool again."),
    (Transient, "Nothing is lost. Go on without memory, and try again later."),
    (Permanent, "Trying again does not help: tell the user."),
)
_ERRORS_SHOWN: Final = 5


def explanation(error: ReverieError) -> str:
    """Return the text of an error with what to do about it."""
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
    sentence = inert(str(error)).rstrip(".") + "."
    return f"{sentence} {advice}" if advice else sentence


def failed(text: str) -> CallToolResult:
    """Return the result of a tool call that failed."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def invalid_arguments(tool: str, error: ValidationError) -> str:
    """Return what is wrong with the arguments of a tool, without the values, which may be long or private."""
    wrong = [_one(one["loc"], one["msg"]) for one in error.errors(include_url=False, include_input=False)]
    more = f"; and {len(wrong) - _ERRORS_SHOWN} more" if len(wrong) > _ERRORS_SHOWN else ""
    return f"Invalid arguments of {tool}: {'; '.join(wrong[:_ERRORS_SHOWN])}{more}. Correct them and call it again."


def unknown_arguments(tool: str, unknown: list[str], known: list[str]) -> str:
    """Return why a tool does not take some arguments. Models try `user` and `agent`: it says that these are fixed."""
    names = ", ".join(inert(name)[:80] for name in unknown[:_ERRORS_SHOWN])
    return (
        f"{tool} does not take {names}; it takes {', '.join(known) or 'no arguments'}. Whose memory this is (agent,"
        " workspace, user) is fixed by the connection, and no argument changes it."
    )


def _one(location: tuple[int | str, ...], message: str) -> str:
    place = ".".join(map(str, location))
    return f"{place}: {message[:1].lower()}{message[1:]}" if place else message
