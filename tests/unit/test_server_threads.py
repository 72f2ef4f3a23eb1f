"""One slow workspace or database takes neither the threads that other calls need, nor the truth from the status."""

from __future__ import annotations

import threading

import anyio
import pytest

from server.responses import MAX_OF_ONE_WORKSPACE, Threads
from server.services import Kept


def test_callers_of_a_slow_workspace_leave_threads_to_others() -> None:
    """Given more calls to a store that hangs than there are threads, then a call to another is answered meanwhile."""
    threads, go_on, entered = Threads(), threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        entered.release()
        assert go_on.wait(60)

    async def scenario() -> str:
        async with anyio.create_task_group() as calls:
            for _ in range(60):
                calls.start_soon(lambda: threads.run(hang, workspace="slow"))
            for _ in range(MAX_OF_ONE_WORKSPACE):
                await anyio.to_thread.run_sync(lambda: entered.acquire(timeout=60))
            try:
                with anyio.fail_after(30):
                    return await threads.run(lambda: "answered", workspace="other")
            finally:
                go_on.set()

    assert anyio.run(scenario) == "answered"
    assert threads._turns == {}, "nothing is kept of workspaces that nobody calls"


def test_a_value_that_waited_for_a_database_is_not_shown_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a status that took 30 s to read, because the database stood still, then it is read again after 20 s; one
    that took half a second is kept for five."""
    seconds = 0.0
    takes = iter([30.0, 0.5, 0.1])
    monkeypatch.setattr("server.services.time.monotonic", lambda: seconds)

    def read() -> float:
        nonlocal seconds
        seconds += next(takes)
        return seconds

    kept = Kept(read, seconds=1.0)
    shown = [kept.read()]
    for pause in (19.0, 1.0, 4.0, 1.0):
        seconds += pause
        shown.append(kept.read())
    assert shown == [30.0, 30.0, 50.5, 50.5, 55.6]
