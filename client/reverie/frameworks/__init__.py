"""Adapters for agent frameworks, each a module that imports its framework; `reverie` itself imports none of them.

The parts that they share are here: valid texts and names of messages, and blocking calls made for asyncio.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reverie.contract import MAX_NAME_CHARACTERS
from reverie.errors import NotFound
from reverie.fields import MAX_PAGE

if TYPE_CHECKING:
    from reverie.client import Reverie
    from reverie.sessions.types import Message

# The part of a framework's message that is searched: a page of a book has 2,000 characters.
_TEXT_CHARACTERS: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def searchable(text: str) -> str:
    """Return the beginning of a text without what cannot be stored: NUL characters and lone surrogates."""
    cut = text[:_TEXT_CHARACTERS].replace("\x00", "")
    return cut.encode(errors="replace").decode()


def label(value: object) -> str | None:
    """Return a short text that names something, or None if the value is none."""
    if not isinstance(value, str) or not value.strip():
        return None
    return searchable(_CONTROL.sub("", value))[:MAX_NAME_CHARACTERS].strip() or None


_T = TypeVar("_T")


async def settled(change: Callable[[], _T]) -> _T:
    """Make a change in a thread and return its result; a task that is cancelled meanwhile ends when the change has.

    Otherwise its caller would go on while the change is still being made, and could not know whether it was.
    """
    running = asyncio.ensure_future(asyncio.to_thread(change))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        running.exception()  # marks it as retrieved: else asyncio logs that it never was
        raise cancelled
    return running.result()


def all_pages(list_page: Callable[..., Sequence[_T]], **arguments: Any) -> Iterator[_T]:
    """Yield the items of all pages of a list."""
    offset = 0
    while page := list_page(**arguments, limit=MAX_PAGE, offset=offset):
        yield from page
        offset += MAX_PAGE


def newest_first(client: Reverie, session: str, *, user: str | None, limit: int = MAX_PAGE) -> Iterator[Message]:
    """Yield the messages of a session, the last one first, reading `limit` at a time; none if there is no session."""
    before: int | None = None
    while before != 1:
        try:
            page = client.sessions.newest_messages(session, limit=limit, before=before, user=user)
        except NotFound:
            return
        if not page:
            return
        yield from reversed(page)
        before = page[0].sequence
