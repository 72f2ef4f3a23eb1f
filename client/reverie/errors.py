"""Every error of Reverie, in three families that decide what happens next.

The family is the policy: `Transient` work is tried again, `Permanent` work is kept as a dead letter for a
person to replay or drop, and `Rejected` is the caller's to mend. Nothing in Reverie looks at message text.
"""

from __future__ import annotations

import msgspec


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a call that was not accepted: its place in the call, the field at fault and why."""

    index: int
    field: str
    error: str


class ReverieError(Exception):
    """The root of all errors that Reverie raises on purpose."""


class Transient(ReverieError):
    """The cause lies outside the work and may pass: try again later."""


class Permanent(ReverieError):
    """The work itself cannot succeed: keep it, with this error, until a person replays or drops it."""


class Rejected(ReverieError):
    """The caller's input is at fault. `field` names what to mend.

    `items` are all the items at fault, where a call had several and none of them could be accepted.
    """

    def __init__(self, message: str, *, field: str = "", items: tuple[Rejection, ...] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.items = items


class Unavailable(Transient):
    """A process that this call needs (broker, server, embedder) did not answer; the text says what was tried.

    `unconfirmed` are the ids of messages whose acceptance is not known. Sending them again with these same ids
    is safe: what did arrive is not stored twice.
    """

    def __init__(self, message: str, *, unconfirmed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.unconfirmed = unconfirmed


class WaitTimeout(Transient):
    """What was accepted is safe, but did not reach the state asked for within the timeout.

    `accepted` are the ids that were accepted; sending them again changes nothing.
    """

    def __init__(self, message: str, *, accepted: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.accepted = accepted


class NotFound(Rejected):
    """What was asked for does not exist for this agent."""


class Conflict(Rejected):
    """What was asked for does not fit the state it meets (a sequence that is taken, a step out of order)."""


class StoreUnavailable(Transient):
    """A database file cannot be used now: full disk, permissions, another process holding it."""


class StoreUnusable(Permanent):
    """A database file cannot be used as it is: corrupt, of a newer schema, or the SQLite library is too old."""
