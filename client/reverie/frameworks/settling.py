"""Run blocking calls of a client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

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
        running.exception()  # else asyncio complains that nobody has asked for it
        raise cancelled
    return running.result()
