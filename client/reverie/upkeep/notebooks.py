"""The calls about an agent's notebook: its files in git, and what dreams promoted; for both kinds of client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from reverie.checks import check_text
from reverie.errors import Rejected
from reverie.http import HttpTransport
from reverie.upkeep.notebook_types import Checkpoint, Commit, CommitList, Difference, Promotion, PromotionList

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")

# As long as the server reads: it has the last word.
_MESSAGE_BYTES = 4_096


class NotebookCalls:
    """`checkpoint`, `history`, `diff` and `promotions`, for a client that has a transport."""

    _http: HttpTransport

    def checkpoint(self, message: str | None = None) -> Checkpoint:
        """Commit this agent's memory files as they are now; without a commit where nothing has changed since the last.

        What is kept out of the files (secrets, files over 1 MiB) is in `refused`. Raises `Rejected` for the message,
        `Conflict` where workspace git is off, `NotFound` for a workspace without any memory, and `Unavailable`.
        """
        if message is not None:
            check_text("message", _text("message", message), _MESSAGE_BYTES)
        return self._http.call("POST", "/v1/checkpoints", Checkpoint, body={"message": message})

    def history(self, limit: int = 20) -> list[Commit]:
        """The commits of this agent's memory files, the newest first. Raises `Conflict` where workspace git is off."""
        return self._http.call("GET", "/v1/history", CommitList, query={"limit": limit}).commits

    def diff(self, a: str, b: str | None = None) -> str:
        """How the files of commit `b`, or of the newest, differ from those of `a`: unified text, empty if they do not.

        Ids may be shortened to 7 characters. Raises `NotFound`, `Rejected`, and `Conflict` where workspace git is off.
        """
        query = {"a": _text("a", a), "b": None if b is None else _text("b", b)}
        return self._http.call("GET", "/v1/history/diff", Difference, query=query).text

    def promotions(self, limit: int = 50, offset: int = 0) -> list[Promotion]:
        """What dream sweeps promoted, the newest first, with what each memory says now."""
        query = {"limit": limit, "offset": offset}
        return self._http.call("GET", "/v1/promotions", PromotionList, query=query).promotions


class AsyncNotebookCalls:
    """The same, for asyncio."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    async def checkpoint(self, message: str | None = None) -> Checkpoint:
        """See `Reverie.checkpoint`."""
        return await self._run(self._sync.checkpoint, message)

    async def history(self, limit: int = 20) -> list[Commit]:
        """See `Reverie.history`."""
        return await self._run(self._sync.history, limit)

    async def diff(self, a: str, b: str | None = None) -> str:
        """See `Reverie.diff`."""
        return await self._run(self._sync.diff, a, b)

    async def promotions(self, limit: int = 50, offset: int = 0) -> list[Promotion]:
        """See `Reverie.promotions`."""
        return await self._run(self._sync.promotions, limit, offset)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{field} must be a text, not {type(value).__name__}", field=field)
    return value
