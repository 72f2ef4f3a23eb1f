"""All errors of Reverie, in three families that decide what happens next, and their form in HTTP responses.

The family is the policy: `Transient` work is tried again, `Permanent` work becomes a dead letter that a person replays
or drops, and `Rejected` input is for the caller to correct. No code depends on the text of an error. Responses carry
errors as RFC 9457 problem details with a stable `type`.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a call that was not accepted: its index in the call, the field at fault, and the error text.

    `conflict` says that it is valid, but conflicts with what is stored.
    """

    index: int
    field: str
    error: str
    conflict: bool = False


class ReverieError(Exception):
    """The base class of all errors that Reverie raises."""


class Transient(ReverieError):
    """The cause is temporary and outside the work: try again later."""


class Permanent(ReverieError):
    """The work cannot succeed: it is kept with this error until a person replays or drops it."""


class Rejected(ReverieError):
    """The caller's input is at fault. `field` names the argument to correct.

    `items` are all items at fault, if a call had several and none was accepted.
    """

    def __init__(self, message: str, *, field: str = "", items: tuple[Rejection, ...] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.items = items


class Unavailable(Transient):
    """A process that this call needs (broker, server, embedder) does not answer; the text says what was tried.

    `unconfirmed` are the ids of messages whose acceptance is not known. Sending them again with these same ids
    is safe: what did arrive is not stored twice.
    """

    def __init__(self, message: str, *, unconfirmed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.unconfirmed = unconfirmed


def broker_away(reason: object) -> Unavailable:
    """Return the error for a broker to which no connection can be made."""
    return Unavailable(f"the broker does not answer ({reason}): is it running? Start it with `reverie up`")


class WaitTimeout(Transient):
    """The accepted messages are safe, but did not reach the requested state within the timeout.

    `accepted` are their ids; sending them again changes nothing.
    """

    def __init__(self, message: str, *, accepted: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.accepted = accepted


class NotFound(Rejected):
    """The requested object does not exist for this agent."""


class Conflict(Rejected):
    """The request conflicts with the current state, such as a sequence that is taken."""


class StoreUnavailable(Transient):
    """A database file cannot be used now: the disk is full, permissions are missing, or another process locks it."""


class StoreUnusable(Permanent):
    """A database file cannot be used: it is corrupt or has a newer schema, or the SQLite library is too old."""


TYPE_PREFIX: Final = "urn:reverie:problem:"
CONTENT_TYPE: Final = "application/problem+json"
# Space is freed when a person or a job deletes something, or an operator raises the quota: not within seconds.
QUOTA_RETRY_SECONDS: Final = 300

# Enough to empty a part of the inbox: running workers store thousands of messages a second.
INBOX_RETRY_SECONDS: Final = 10


class TooLarge(Rejected):
    """The body of a request is larger than the server accepts."""


class Unauthorised(Rejected):
    """The server requires a token, and got none or a wrong one."""


class Forbidden(Rejected):
    """The token does not allow the call; the text names the right that it lacks, and nothing else."""


class TooManyFailures(Rejected):
    """The caller's address has sent too many wrong tokens. A right one is accepted at any time.

    `retry_after_seconds` is when the server will check another wrong token.
    """

    def __init__(self, message: str, *, field: str = "", retry_after_seconds: int = 0) -> None:
        super().__init__(message, field=field)
        self.retry_after_seconds = retry_after_seconds


class TooSlow(Unavailable):
    """A request did not arrive in time: its sender or the network was slow, or the server was stopped meanwhile."""


class UnsupportedType(Rejected):
    """The body of a request is not sent as JSON."""


class CrossSite(Rejected):
    """A web page of another site made the request, and the server does not allow its origin."""


class Limited(Rejected):
    """The caller has used up a rate. `retry_after_seconds` is when it is worth trying again."""

    def __init__(self, message: str, *, field: str = "", retry_after_seconds: int = 0) -> None:
        super().__init__(message, field=field)
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(Limited):
    """The workspace or tenant is full: something must be deleted, or an operator must raise the quota `field`."""


class InboxFull(Unavailable):
    """So many items wait to be stored that the broker accepts no more. It keeps those that it has accepted.

    `retry_after_seconds` is when it is worth trying again.
    """

    retry_after_seconds = INBOX_RETRY_SECONDS


class AgentQueueFull(Unavailable):
    """So many runs wait for the agents' own workers that their queue takes no more. Those that wait are kept."""


class Malformed(Rejected):
    """The body of a request is not valid JSON."""


class Internal(Permanent):
    """The server failed unexpectedly; its log has the details under the trace id."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error response. `field` names the argument at fault; the lists are about the items of the call."""

    type: str
    title: str
    status: int
    detail: str
    field: str = ""
    trace: str = ""
    accepted: list[str] = []
    unconfirmed: list[str] = []
    rejected: list[Rejection] = []


# From special to general: the first class that fits an error decides.
_KINDS: Final[tuple[tuple[type[ReverieError], str, int, str], ...]] = (
    (Malformed, "rejected", 400, "The body is not valid"),
    (Unauthorised, "unauthorised", 401, "A token is required"),
    (Forbidden, "forbidden", 403, "The token does not allow this"),
    (TooManyFailures, "too-many-failures", 429, "Too many wrong tokens"),
    (QuotaExceeded, "quota-exceeded", 429, "A quota is used up"),
    (Limited, "limited", 429, "Too many requests"),
    (TooSlow, "too-slow", 503, "The request did not arrive in time"),
    (UnsupportedType, "unsupported-type", 415, "The body is not sent as JSON"),
    (CrossSite, "cross-site", 403, "A page of another site made the request"),
    (NotFound, "not-found", 404, "Not found"),
    (Conflict, "conflict", 409, "Conflict with the current state"),
    (TooLarge, "too-large", 413, "The body is too large"),
    (Rejected, "rejected", 422, "The request is not valid"),
    (WaitTimeout, "wait-timeout", 504, "Accepted, but not in the requested state in time"),
    (InboxFull, "inbox-full", 429, "Too much waits to be stored"),
    (Transient, "unavailable", 503, "Temporarily unavailable"),
    (Internal, "internal", 500, "The server failed"),
    (Permanent, "permanent", 500, "It cannot succeed"),
    (ReverieError, "internal", 500, "The server failed"),
)


def problem_of(error: ReverieError, *, trace: str = "") -> Problem:
    """Return the problem details of an error."""
    _, slug, status, title = next(kind for kind in _KINDS if isinstance(error, kind[0]))
    return Problem(
        type=TYPE_PREFIX + slug,
        title=title,
        status=status,
        detail=str(error),
        field=getattr(error, "field", ""),
        trace=trace,
        accepted=list(getattr(error, "accepted", ())),
        unconfirmed=list(getattr(error, "unconfirmed", ())),
        rejected=list(getattr(error, "items", ())),
    )


def error_of(problem: Problem) -> ReverieError:
    """Return the error that a problem describes, or the nearest that this version knows."""
    slug = problem.type.removeprefix(TYPE_PREFIX)
    away = {"unavailable": Unavailable, "inbox-full": InboxFull, "too-slow": TooSlow}
    if slug in away:
        return away[slug](problem.detail, unconfirmed=tuple(problem.unconfirmed))
    if slug == "wait-timeout":
        return WaitTimeout(problem.detail, accepted=tuple(problem.accepted))
    if slug == "rejected":
        kind = Malformed if problem.status == 400 else Rejected
        return kind(problem.detail, field=problem.field, items=tuple(problem.rejected))
    if slug == "conflict":
        return Conflict(problem.detail, field=problem.field, items=tuple(problem.rejected))
    for known, name, _, _ in _KINDS:
        if name == slug and issubclass(known, Rejected):
            return known(problem.detail, field=problem.field)
    if slug == "internal":
        return Internal(f"{problem.detail} (trace {problem.trace})")
    return Permanent(problem.detail)
