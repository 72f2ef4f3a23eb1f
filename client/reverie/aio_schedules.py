"""The calls for schedules and their runs, for asyncio: each awaited in a thread of the client's pool."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from reverie.scheduling.schedules import ScheduleCalls

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _awaited(
    call: Callable[Concatenate[ScheduleCalls, _P], _R],
) -> Callable[Concatenate[AsyncScheduleCalls, _P], Coroutine[Any, Any, _R]]:
    """The same call, its arguments and its answer, to be awaited."""

    @functools.wraps(call)
    async def awaited(self: AsyncScheduleCalls, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await self._run(call, self._sync, *args, **kwargs)

    return awaited


class AsyncScheduleCalls:
    """Schedules and their runs, for a client that runs calls in threads."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    add_schedule = _awaited(ScheduleCalls.add_schedule)
    schedule = _awaited(ScheduleCalls.schedule)
    schedules = _awaited(ScheduleCalls.schedules)
    count_schedules = _awaited(ScheduleCalls.count_schedules)
    update_schedule = _awaited(ScheduleCalls.update_schedule)
    pause_schedule = _awaited(ScheduleCalls.pause_schedule)
    resume_schedule = _awaited(ScheduleCalls.resume_schedule)
    delete_schedule = _awaited(ScheduleCalls.delete_schedule)
    next_runs = _awaited(ScheduleCalls.next_runs)
    run_schedule_now = _awaited(ScheduleCalls.run_schedule_now)
    schedule_runs = _awaited(ScheduleCalls.schedule_runs)
    schedule_run = _awaited(ScheduleCalls.schedule_run)
    complete_run = _awaited(ScheduleCalls.complete_run)
    cancel_run = _awaited(ScheduleCalls.cancel_run)
