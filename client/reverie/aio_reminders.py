"""The calls for reminders and notifications, for asyncio: each awaited in a thread of the client's pool."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from reverie.scheduling.notifications import NotificationCalls
from reverie.scheduling.reminders import ReminderCalls

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _awaited(
    call: Callable[Concatenate[Any, _P], _R],
) -> Callable[Concatenate[AsyncReminderCalls, _P], Coroutine[Any, Any, _R]]:
    """The same call, its arguments and its answer, to be awaited."""

    @functools.wraps(call)
    async def awaited(self: AsyncReminderCalls, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await self._run(call, self._sync, *args, **kwargs)

    return awaited


class AsyncReminderCalls:
    """`remind`, `notifications` and their relatives, for a client that runs calls in threads."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    remind = _awaited(ReminderCalls.remind)
    reminder = _awaited(ReminderCalls.reminder)
    reminders = _awaited(ReminderCalls.reminders)
    claim_reminders = _awaited(ReminderCalls.claim_reminders)
    reminder_delivered = _awaited(ReminderCalls.reminder_delivered)
    cancel_reminder = _awaited(ReminderCalls.cancel_reminder)
    notifications = _awaited(NotificationCalls.notifications)
    acknowledge_notifications = _awaited(NotificationCalls.acknowledge_notifications)
