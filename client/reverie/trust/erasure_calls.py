"""The calls for erasures: start one, and follow it to its receipt."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from reverie.calls import Call, OfUser, Paged
from reverie.errors import Rejected
from reverie.fields import UserId, label
from reverie.trust.erasure_types import Erasure, ErasureList

# The selectors of which one names what is erased; without any it is a whole agent or workspace.
_SELECTORS: Final = ("user", "session", "message", "memory")

ErasureId = Annotated[str, label("The id of an erasure.")]


class Erase(Call[Erasure], kw_only=True, frozen=True):
    """Start an erasure: remove a user, session, message, memory, agent or workspace with every trace, and prove it.

    Name one of `user`, `session`, `message` and `memory`, or only `agent` or `workspace` for all of them. A user or an
    agent is erased everywhere unless `agent` and `workspace` limit it; the others are looked for in the `agent` and
    `workspace` given, by default those of the client. What was accepted before does not reappear; what is stored later
    is kept. The job goes on in the background and survives crashes; `erasure` returns its progress and its receipt.
    There is no undo. With `dry_run` only the numbers are returned. Raises `Rejected` and `Unavailable`.
    """

    route: ClassVar = "POST /v1/erasures"
    required_scope: ClassVar = "forget"
    user: Annotated[str | None, label("Everything of this end user.")] = None
    session: Annotated[str | None, label("This session and what came from it.")] = None
    message: Annotated[str | None, label("This message and what came from it.")] = None
    memory: Annotated[str | None, label("This memory, fact or note, with its history.")] = None
    agent: Annotated[str | None, label("Only of this agent, or alone: everything of this agent.")] = None
    workspace: Annotated[str | None, label("Only in this workspace, or alone: the whole workspace.")] = None
    dry_run: Annotated[bool, Meta(description="Only count what would be removed.")] = False

    def checked(self) -> Erase:
        """Raise `Rejected` if several things are named."""
        named = [name for name in _SELECTORS if getattr(self, name) is not None]
        if len(named) > 1:
            raise Rejected(f"{' and '.join(named)} exclude each other: erase one after the other", field=named[1])
        return self


class GetErasure(OfUser[Erasure], frozen=True):
    """Return an erasure with its progress, and with its receipt when it is done. Raises `NotFound`.

    A token for one user sees the erasures that it has asked for.
    """

    route: ClassVar = "GET /v1/erasures/{id}"
    id: ErasureId


class ListErasures(Paged[ErasureList], kw_only=True, frozen=True):
    """List the erasures, the newest first. A token for one user sees those that it has asked for."""

    route: ClassVar = "GET /v1/erasures"
    user: UserId | None = None
