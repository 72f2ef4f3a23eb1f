"""One slow workspace does not take the threads that all other calls need."""

from __future__ import annotations

import threading

import anyio

from server.responses import MAX_OF_ONE_WORKSPACE, Threads


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
