"""A session that kills the process that looks for memories in it (SIGKILL) is set aside; the others are read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from memory.pipeline.ingest import IngestServices, drain_inbox
from reverie import contract
from reverie.pipeline.producer import Producer
from storage.memories.records import MemoryFilter
from support.agents import until
from support.forks import Program
from support.pipeline import turns
from worker.runtime import Runtime

WORKSPACE = "ws"
# A worker whose pool is killed, as by the kernel for want of memory, whenever it reads the session `deadly`.
WORKER = """
import os, signal
from worker import app as module
module.app.loader.import_default_modules()
from memory.memories.extraction import SessionReader
read = SessionReader.read

def read_or_die(self, time_is_up):
    if self.session.id == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    read(self, time_is_up)

SessionReader.read = read_or_die
module.app.worker_main(["worker", "--queues=extraction", "--pool=prefork", "--concurrency=1", "--loglevel=ERROR",
    "--without-gossip", "--without-mingle"])
"""


def test_a_session_that_kills_its_reader_is_set_aside_and_others_are_read(
    make_runtime: Callable[..., Runtime], tmp_path: Path, valkey_url: str, broker_prefix: str
) -> None:
    """Given one session among others that kills its reader each time, then its worker lives on, the session is a dead
    letter after three deaths, and what is said in the others is remembered."""
    runtime = make_runtime(extraction_debounce_seconds=0)
    producer = Producer(valkey_url, workspace=WORKSPACE, prefix=broker_prefix)
    for session in ("before", "deadly", "last"):
        producer.enqueue(turns(f"I'm allergic to {session} walnuts.", session=session))
    drain_inbox(
        IngestServices(runtime.inbox, runtime.working_memory),
        lambda: runtime.store(WORKSPACE),
        workspace=WORKSPACE,
        now=runtime.now,
    )
    runtime.stores.account()
    environment = {
        "REVERIE_DATA": str(tmp_path / "data"),
        "REVERIE_BROKER": valkey_url,
        "REVERIE_BROKER_PREFIX": broker_prefix,
        "REVERIE_EMBEDDING_PROVIDER": "hash",
        "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
    }
    log = tmp_path / "worker.log"
    process = Program(WORKER, [], environment, log)
    readers = Readers(runtime, process.pid)
    try:
        until(lambda: process.poll() is not None or letters(runtime) or readers.died(), "the session is not set aside")
        assert process.poll() is None, log.read_text("utf-8")
    finally:
        process.kill()
        process.wait()
    ((session, error_type, attempts),) = letters(runtime)
    assert (session, error_type, attempts) == ("deadly", "WorkerCrashed", 3)
    assert {content for content in remembered(runtime) if "walnuts" in content} == {
        "User is allergic to before walnuts.",
        "User is allergic to last walnuts.",
    }


class Readers:
    """The processes of the worker's pool, one after the other; each is given the job."""

    def __init__(self, runtime: Runtime, worker: int) -> None:
        self._runtime, self._worker, self._seen = runtime, psutil.Process(worker), set[int]()

    def died(self) -> bool:
        """Give a new process the job, as the clock does, while the lease of the dead one still runs. Always False."""
        now = {child.pid for child in self._worker.children()} if self._worker.is_running() else set()
        if now - self._seen:
            self._seen |= now
            self._runtime.task_sender.send(contract.EXTRACT_MEMORIES, manual=True)
        return False


def letters(runtime: Runtime) -> list[tuple[str | None, str, int]]:
    """The dead letters of the workspace."""
    with runtime.store(WORKSPACE).reading() as tx:
        found = tx.for_agent("ana").dead_letters.list()
    return [(letter.session, letter.error_type, letter.attempts) for letter in found]


def remembered(runtime: Runtime) -> list[str]:
    """What was remembered."""
    with runtime.store(WORKSPACE).reading() as tx:
        return [memory.content for memory in tx.for_agent("ana").memories.iterate(MemoryFilter())]
