"""All errors of Reverie, in three families that decide what happens next.

The family is the policy: `Transient` work is tried again, `Permanent` work becomes a dead letter that a person replays
or drops, and `Rejected` input is for the caller to correct. No code depends on the text of an error.
"""

from __future__ import annotations

import msgspec


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a call that was not accepted: its index in the call, the field at fault, and the error text."""

    index: int
    field: str
    error: str


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
