"""One store is locked for as long as another program likes: only who uses it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest

from reverie import Reverie
from reverie.errors import ReverieError
from server.responses import MAX_OF_ONE_WORKSPACE
from storage.stores import Stores
from worker.runtime import Runtime

# More than the server has threads.
WRITERS = 2 * MAX_OF_ONE_WORKSPACE


@pytest.fixture
def here(runtime: Runtime) -> Runtime:
    """The runtime that is served."""
    return runtime


@contextmanager
def locked(runtime: Runtime, workspace: str) -> Iterator[None]:
    """Hold the write lock of a store, as another program can."""
    with closing(Stores(runtime.settings.data)) as others, others.workspace(workspace).writing():
        yield


def test_others_store_and_recall_while_a_store_is_locked(here: Runtime, url: str) -> None:
    """Given more writers of a locked store than the server has threads, when somebody else remembers and recalls in
    another workspace, then they are answered while the lock is held, and the writers once it is not."""
    arrived = threading.Semaphore(0)

    def write(number: int) -> None:
        with Reverie("ana", url=url, workspace="locked", timeout_seconds=60) as ana:
            arrived.release()
            while True:
                with suppress(ReverieError):
                    ana.facts.set("harbour", f"pier {number}", "open")
                    return

    with ThreadPoolExecutor(WRITERS) as threads, Reverie("lif", url=url, workspace="free") as lif:
        with locked(here, "locked"):
            writers = [threads.submit(write, number) for number in range(WRITERS)]
            for _ in writers:
                arrived.acquire()
            lif.remember("The lantern hangs on the quay")
            assert lif.memories.list()
            assert not all(writer.done() for writer in writers)
        for writer in writers:
            writer.result()
    with Reverie("ana", url=url, workspace="locked") as ana:
        assert len(ana.facts.list("harbour")) == WRITERS
