"""A pipeline on a PostgreSQL server whose failures are part of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from reverie.errors import StoreUnavailable
from storage.postgres.stores import PostgresStores
from storage.verify import verify
from support.agents import until
from support.pipeline import WORKSPACE, Pipeline

STAGES: Final = ("ingest", "chunk", "embed", "index")


@contextmanager
def pipeline_on(url: str, folder: Path, **more: Any) -> Iterator[Pipeline]:
    """Open a pipeline whose stores are in a database; `more` goes to `Pipeline`."""
    made = Pipeline(folder / "data", **more)
    made.stores.close()
    made.stores = PostgresStores(folder / "data", url)
    made.stores.workspace(WORKSPACE)
    with closing(made):
        yield made


def try_stage(pipe: Pipeline, stage: str) -> str:
    """Run a stage; return the error of a database that is unavailable. Any other error fails the test."""
    try:
        getattr(pipe, stage)()
    except StoreUnavailable as error:
        return str(error)
    return ""


def assert_all_stored(pipe: Pipeline, messages: int) -> None:
    """Settle everything, and find each message once, none given up."""
    pipe.make_due()
    pipe.lose_worker()
    pipe.advance(400)
    pipe.settle()
    assert (pipe.count("messages", "1 = 1"), pipe.count("claims", "1 = 1"), pipe.dead_letters()) == (messages, 0, [])
    assert verify(pipe.store).wrong == []
    assert len(pipe.recall("zanzibar", mode="vector", limit=100).results) == min(messages, 100)


def run_while(pipe: Pipeline, action: Callable[[], object]) -> tuple[int, list[BaseException], int]:
    """Send, store and recall in threads while `action` runs; return messages, unexpected errors, and recalls.

    It begins once a message was sent and a recall has found something, so that all of it is under way.
    """
    stopping = threading.Event()
    sent: list[str] = []
    errors: list[BaseException] = []
    answers: list[str] = []

    def repeat(step: Callable[[], object]) -> None:
        while not stopping.is_set():
            try:
                with suppress(StoreUnavailable):
                    step()
            except BaseException as error:  # the test shows it
                errors.append(error)
                return

    def work() -> None:
        pipe.make_due()
        for stage in STAGES:
            try_stage(pipe, stage)

    steps = (
        lambda: sent.extend(pipe.say(f"zanzibar {len(sent)}")),
        work,
        work,
        lambda: answers.extend(pipe.found("zanzibar", limit=1)),
    )
    threads = [threading.Thread(target=repeat, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    try:
        until(lambda: errors or (sent and answers), "nothing is sent or found")
        action()
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    return len(sent), errors, len(answers)
