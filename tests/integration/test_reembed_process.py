"""A change of model by the real command, killed half-way, while a running server answers and is never restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memory.lifecycle.forgetting import forget_session
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import index_chunks
from storage.stores import Store
from storage.verify import verify
from support.http import running_server
from support.pipeline import turns
from support.stages import store_inbox
from tasks.pipeline import embed_workspace
from worker.runtime import Runtime

ROOT = Path(__file__).parents[2]
NEW_MODEL = "all-MiniLM-L6-v2"
# Three batches, so that a change can be killed between two of them.
MESSAGES = 600
# What a hash knows nothing of, and the real model does.
SAID = "The cat sleeps on the warm windowsill all afternoon."
ASKED = "Where is the kitten napping?"

Reembed = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def reembed(runtime: Runtime) -> Iterator[Reembed]:
    """Start the command on the runtime's data folder, whose settings select the hash embedder; kill what still runs."""
    started: list[subprocess.Popen[str]] = []
    settings = runtime.settings

    def run(*options: str) -> subprocess.Popen[str]:
        variables = {
            "REVERIE_DATA": str(settings.data),
            "REVERIE_BROKER": str(settings.broker),
            "REVERIE_BROKER_PREFIX": settings.broker_prefix,
            "REVERIE_EMBEDDING_PROVIDER": "hash",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
        }
        command = [sys.executable, "-m", "cli", "db", "reembed", "--json", *options]
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def say(runtime: Runtime, *messages: str, session: str) -> None:
    for first in range(0, len(messages), 1_000):
        runtime.inbox.accept("default", turns(*messages[first : first + 1_000], agent="ana", session=session))


def work(runtime: Runtime) -> Store:
    """What the workers do, in this process, whose runtime is never made anew."""
    store_inbox(runtime)
    store = runtime.store("default")
    while chunk_messages(store, now=runtime.now, on_batch=lambda _: None).done:
        pass
    while embed_workspace(runtime, "default", batch_size=256).get("done"):
        pass
    while index_chunks(store, now=runtime.now, on_indexed=lambda _: None).done:
        pass
    return store


def vectors_of(store: Store, model: str) -> int:
    with store.reading() as tx:
        found = tx.connection.exec_driver_sql("SELECT count(*) FROM chunks_vec WHERE model = ?", (model,))
        return int(found.scalar_one())


def searched(store: Store) -> tuple[str, int]:
    with store.reading() as tx:
        generation = tx.index.active("vector")
    assert generation is not None
    return generation.model, generation.dim


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ask(url: str, query: str, **more: Any) -> dict[str, Any]:
    answer = httpx2.post(
        f"{url}/v1/recall", json={"query": query, **more}, headers={"X-Reverie-Agent": "ana"}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@contextmanager
def asked_throughout(url: str) -> Iterator[list[str]]:
    """Ask the server again and again in a thread; gives what was wrong with any of the answers."""
    wrong: list[str] = []
    stop = threading.Event()

    def go_on() -> None:
        number = 0
        while not stop.wait(0.05):
            number = (number + 7) % MESSAGES
            try:
                answer = ask(url, f"zanzibar thought {number}", limit=20)
                texts = [memory["text"] for memory in answer["results"]]
                if f"zanzibar thought {number}" not in texts:
                    wrong.append(f"{number} is not among {texts[:3]}, {answer.get('degraded')!r}")
            except Exception as error:
                wrong.append(repr(error))

    thread = threading.Thread(target=go_on, name="asking")
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join()


def texts(answer: dict[str, Any]) -> Sequence[str]:
    return [memory["text"] for memory in answer["results"]]


def test_a_killed_change_goes_on_and_a_running_server_answers_throughout(runtime: Runtime, reembed: Reembed) -> None:
    """Given 602 chunks of a hash, a change to the real model killed half-way, messages that come and go, then run
    again, when it is done, then no answer was missing, nothing is lost or mixed, and the server knows the new model.
    """
    say(runtime, *[f"zanzibar thought {number}" for number in range(MESSAGES)], SAID, session="s")
    say(runtime, "zanzibar to be forgotten", session="gone")
    store = work(runtime)
    with running_server(runtime) as url:
        assert texts(ask(url, SAID, mode="vector"))[0] == SAID
        assert texts(ask(url, ASKED, mode="vector", limit=1)) != [SAID], "a hash knows no meaning"
        with asked_throughout(url) as wrong:
            first = reembed("--provider", "sentence-transformers", "--model", NEW_MODEL)
            wait_until(lambda: vectors_of(store, NEW_MODEL) > 0, first)
            first.send_signal(signal.SIGKILL)
            first.communicate()
            done = vectors_of(store, NEW_MODEL)
            assert (first.returncode, 0 < done < MESSAGES + 2) == (-signal.SIGKILL, True)
            assert searched(store) == ("hash-64", 64)
            assert verify(store).wrong == []
            assert texts(ask(url, SAID, mode="vector"))[0] == SAID

            stores = runtime.stores
            forget_session(stores, store, runtime.inbox, runtime.working_memory, agent="ana", session="gone")
            say(runtime, "zanzibar in between", session="s")
            work(runtime)
            assert verify(store).wrong == []
            assert texts(ask(url, "zanzibar in between", mode="vector"))[0] == "zanzibar in between"

            second = reembed()
            out, errors = second.communicate(timeout=300)
            assert (second.returncode, errors) == (0, f"default: resuming the unfinished change to {NEW_MODEL}\n")
            assert texts(ask(url, ASKED, mode="vector", limit=1)) == [SAID], "the running server knows the new model"
        assert wrong == []

        report = json.loads(out)["default"]
        assert (report["resumed"], report["embedded"] + done) in ((True, MESSAGES + 2), (True, MESSAGES + 3))
        assert searched(store) == (NEW_MODEL, 384)
        assert (vectors_of(store, NEW_MODEL), vectors_of(store, "hash-64")) == (MESSAGES + 2, 0)
        verdict = verify(store)
        assert (verdict.wrong, verdict.counts["in_vector_index"]) == ([], MESSAGES + 2)

        say(runtime, "zanzibar afterwards", session="s")
        work(runtime)
        assert vectors_of(store, NEW_MODEL) == MESSAGES + 3
        answer = ask(url, "zanzibar afterwards", mode="vector", explain=True)
        assert (texts(answer)[0], answer.get("degraded", "")) == ("zanzibar afterwards", "")
        assert "zanzibar to be forgotten" not in texts(ask(url, "zanzibar to be forgotten", limit=100))
        assert verify(store).wrong == []
