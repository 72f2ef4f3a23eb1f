"""The tasks themselves, on a real broker: each harmless when run twice, and each found again when it was lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from memory.lifecycle.forgetting import forget_workspace
from memory.pipeline import recovery
from memory.sessions.sessions import newest_messages
from retrieval.query import RecallRequest
from reverie import contract
from reverie.errors import NotFound
from reverie.pipeline import inbox
from reverie.pipeline.calls import IngestFile
from reverie.pipeline.producer import Producer
from reverie.pipeline.submission import build_file
from storage.verify import verify
from support.pipeline import turns
from support.recalling import recall
from worker import app as worker_app
from worker.runtime import Runtime

WORKSPACE = "ws"
STAGES = (contract.INGEST_MESSAGES, contract.CHUNK_MESSAGES, contract.EMBED_CHUNKS, contract.INDEX_CHUNKS)
JOBS = (
    contract.RECOVER_INBOX,
    contract.SWEEP_STAGES,
    contract.BACKFILL_EMBEDDINGS,
    contract.OPTIMIZE_STORE,
    contract.VERIFY_STORE,
)


@pytest.fixture
def here(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """The runtime that the tasks of this process get."""
    monkeypatch.setattr("tasks.pipeline.SMALL_BATCH", 0)  # each stage has a task of its own
    with worker_app.use_runtime(runtime):
        worker_app.app.loader.import_default_modules()
        yield runtime


@pytest.fixture
def producer(here: Runtime) -> Producer:
    """A producer on the same broker."""
    return Producer(here.settings.broker_url, workspace=WORKSPACE, prefix=here.settings.broker_prefix)


def run(task: str, **arguments: Any) -> Mapping[str, Any]:
    """The body of a task, as a worker runs it."""
    found: Mapping[str, Any] = worker_app.app.tasks[task].body(**arguments)
    return found


def run_to_end(task: str) -> None:
    """Run a stage, and again while it asks for another task: on a slow machine its time may be up after one batch."""
    while run(task, workspace=WORKSPACE).get("more"):
        pass


def queued(here: Runtime) -> int:
    return sum(here.monitor.queue_depths().values())


def state(here: Runtime) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the store that a second run must not change."""
    with here.store(WORKSPACE).reading() as tx:
        return {
            table: [tuple(row) for row in tx.connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY 1, 2")]
            for table in ("sessions", "messages", "chunks", "message_chunks", "chunk_tags", "files", "claims")
        }


def recent(here: Runtime) -> list[str]:
    found = newest_messages(here.store(WORKSPACE), here.working_memory, agent="ana", session="s")
    return [message.content for message in found]


def found(here: Runtime, query: str, mode: Any) -> set[str]:
    request = RecallRequest(query=query, agent="ana", mode=mode, limit=100)
    return {memory.text for memory in recall(here.store(WORKSPACE), here.embedder, request)}


@pytest.mark.parametrize("repeated", STAGES)
def test_a_stage_that_is_run_twice_changes_nothing_the_second_time(
    here: Runtime, producer: Producer, repeated: str
) -> None:
    """Given a task delivered twice, when the pipeline goes on, then everything is there once."""
    producer.enqueue(turns("zanzibar one", "zanzibar two", "zanzibar one"))
    producer.enqueue([build_file(IngestFile(source_uri="file:///z", content="zanzibar file"), agent="ana", trace="t")])
    for task in STAGES:
        run_to_end(task)
        if task == repeated:
            before = state(here)
            run(task, workspace=WORKSPACE)
            assert state(here) == before
    assert recent(here) == ["zanzibar one", "zanzibar two", "zanzibar one"]
    for mode in ("keyword", "vector"):
        assert found(here, "zanzibar", mode) == {"zanzibar one", "zanzibar two", "zanzibar file"}
    verdict = verify(here.store(WORKSPACE))
    assert (verdict.wrong, verdict.counts["messages"], verdict.counts["chunks"]) == ([], 3, 3)


@pytest.mark.parametrize("job", JOBS)
def test_a_periodic_job_run_twice_is_skipped_or_harmless(here: Runtime, producer: Producer, job: str) -> None:
    """Given two beats, then one period is run once; run by hand twice, it changes nothing the second time."""
    producer.enqueue(turns("zanzibar"))
    for task in STAGES:
        run(task, workspace=WORKSPACE)
    counts = [run(job), run(job)]
    # A new period may begin between the two: then both ran, and that is harmless as well.
    assert "skipped" not in counts[0]
    before = state(here)
    for _ in range(2):
        assert "skipped" not in run(job, manual=True)
    assert state(here) == before
    assert verify(here.store(WORKSPACE)).wrong == []
    last = here.stores.jobs().last_runs()[job]
    assert (last.error, last.finished_at is not None) == (None, True)


def test_a_periodic_job_of_one_period_is_run_by_one_of_two_beats(
    here: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the same moment, when two beats have sent the task, then the second run is skipped."""
    monkeypatch.setattr(type(here), "now", lambda self: 1_800_000_000_000_000)
    assert "skipped" not in run(contract.SWEEP_STAGES)
    assert run(contract.SWEEP_STAGES) == {"skipped": 1}


def test_a_thousand_messages_make_a_handful_of_tasks(
    here: Runtime, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given 1,000 messages sent one by one, their notifications are one task for each stage, not three thousand."""
    # After this another one is sent, in case the sender was killed; a busy machine may take longer to send it.
    monkeypatch.setattr(inbox, "NOTIFYING_SECONDS", 600)
    for payload in turns(*[f"zanzibar {number}" for number in range(1_000)]):
        producer.enqueue([payload])
    assert queued(here) == 1
    while here.inbox.stats(WORKSPACE).size:
        run(contract.INGEST_MESSAGES, workspace=WORKSPACE)
    for task in (contract.CHUNK_MESSAGES, contract.EMBED_CHUNKS, contract.INDEX_CHUNKS):
        while run(task, workspace=WORKSPACE)["more"]:
            pass
    assert queued(here) <= 12
    assert verify(here.store(WORKSPACE)).counts["in_vector_index"] == 1_000


def flags(here: Runtime) -> list[bytes]:
    return list(here.broker.keys(f"{here.settings.broker_prefix}wake:*"))


def set_back(here: Runtime, seconds: float) -> None:
    """Have the flags of all tasks say that they were sent so many seconds earlier."""
    for flag in flags(here):
        here.broker.set(flag, int(here.broker.get(flag) or 0) - int(seconds * 1_000_000), keepttl=True)


def no_tasks(here: Runtime) -> None:
    """Empty the queues: where tasks of many workspaces wait, a task does what the next ones would."""
    here.broker.delete(*(here.settings.broker_prefix + queue for queue in contract.QUEUES))


def waiting_at_every_stage(here: Runtime, workspaces: int) -> int:
    """Leave a task for each of four stages of many workspaces in the queues; return how many these are."""
    for number in range(workspaces):
        name = f"many{number}"
        elsewhere = Producer(here.settings.broker_url, workspace=name, prefix=here.settings.broker_prefix)
        for done, content in enumerate(("indexed", "embedded", "chunked", "stored")):
            elsewhere.enqueue(turns(f"{content} {number}"))
            for task in STAGES[: len(STAGES) - 1 - done]:
                no_tasks(here)
                run(task, workspace=name)
        no_tasks(here)
        run(contract.INGEST_MESSAGES, workspace=name)
        elsewhere.enqueue(turns(f"accepted {number}"))
    no_tasks(here)
    here.broker.delete(*flags(here))
    for number in range(workspaces):
        for stage in ("ingest", "chunk", "embed", "index"):
            here.notify_stage(stage, f"many{number}")
    return queued(here)


def test_no_sweep_sends_a_task_again_that_lies_in_its_queue(here: Runtime) -> None:
    """Given queues longer than workers drain in hours, when sweeps run and every flag has ended, then none is added."""
    waiting = waiting_at_every_stage(here, 5)
    assert waiting == 20
    assert all(here.broker.ttl(flag) > 3_600 for flag in flags(here))
    set_back(here, 7_200)
    for _ in range(3):
        run(contract.SWEEP_STAGES, manual=True)
        assert queued(here) == waiting
    here.broker.delete(*flags(here))
    run(contract.SWEEP_STAGES, manual=True)
    assert queued(here) == waiting


@pytest.mark.parametrize("queue", [contract.QUEUE_INDEX, contract.QUEUE_EMBED])
def test_the_sweep_sends_a_task_again_whose_flag_is_set_and_that_lies_in_no_queue(
    here: Runtime, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given tasks that were lost before they began, when the sweep runs, then it sends each of them once."""
    monkeypatch.setattr("memory.pipeline.embedding._INDEXED_AT_ONCE", 0)
    waiting = waiting_at_every_stage(here, 5)
    lost = here.monitor.queue_depths()[queue]
    here.broker.delete(here.settings.broker_prefix + queue)
    run(contract.SWEEP_STAGES, manual=True)
    assert queued(here) == waiting - lost  # their senders may be about to send them
    set_back(here, 3)
    for _ in range(2):
        run(contract.SWEEP_STAGES, manual=True)
        assert queued(here) == waiting


def test_a_lost_ingest_task_delays_what_comes_later_until_the_next_sweep_only(
    here: Runtime, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a task that was lost before it began, when items are late, then the sweep lets the next task be sent."""
    producer.enqueue(turns("one"))
    here.broker.delete(here.settings.broker_prefix + contract.QUEUE_INGEST)
    set_back(here, 3)
    producer.enqueue(turns("two"))
    assert queued(here) == 0
    monkeypatch.setattr(recovery, "GRACE_SECONDS", 0)
    run(contract.RECOVER_INBOX, manual=True)
    assert here.monitor.queue_depths()[contract.QUEUE_INGEST] == 1
    run(contract.INGEST_MESSAGES, workspace=WORKSPACE)
    producer.enqueue(turns("three"))
    assert here.monitor.queue_depths()[contract.QUEUE_INGEST] == 2


def test_after_a_flush_the_sweeps_bring_everything_stored_to_its_end(here: Runtime, producer: Producer) -> None:
    """Given work at each stage and a broker that lost every key, when the sweeps run, then all is searchable."""
    for number in range(3):
        producer.enqueue(turns(f"zanzibar {number}"))
        for task in STAGES[: number + 1]:
            run(task, workspace=WORKSPACE)
    keys = here.broker.keys(f"{here.settings.broker_prefix}*")
    here.broker.delete(*keys)
    assert queued(here) == 0
    for _ in range(3):
        run(contract.SWEEP_STAGES, manual=True)
        for task in STAGES[1:]:
            run(task, workspace=WORKSPACE)
    expected = {"zanzibar 0", "zanzibar 1", "zanzibar 2"}
    assert found(here, "zanzibar", "keyword") == found(here, "zanzibar", "vector") == expected


def test_a_wake_up_that_comes_after_its_workspace_was_deleted_makes_no_file(here: Runtime, producer: Producer) -> None:
    """Given tasks still on their way, when the workspace is gone, then they leave it gone."""
    producer.enqueue(turns("zanzibar"))
    run(contract.INGEST_MESSAGES, workspace=WORKSPACE)
    forget_workspace(here.erasure_services, WORKSPACE)
    run(contract.INGEST_MESSAGES, workspace=WORKSPACE)
    for task in STAGES[1:]:
        with pytest.raises(NotFound):
            run(task, workspace=WORKSPACE)
    assert here.stores.names() == []
    assert not here.stores.database_path(WORKSPACE).parent.exists()


# The store may take as long to open as a busy machine needs: a worker that loses patience never gets to the bug.
BUG = """
import storage.pipeline.messages, worker.app
from worker.app import app, settings
from worker.logs import configure_logging
worker.app.STORE_PATIENCE_SECONDS = None
configure_logging(settings, process="test")
app.loader.import_default_modules()
storage.pipeline.messages._INSERT = "INSERT INTO messages (content, role) VALUES (:content, :missing)"
app.tasks["reverie.ingest_messages"].apply(kwargs={"workspace": "ws"})
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_task_that_meets_a_bug_is_logged_without_what_was_said(
    here: Runtime, producer: Producer, log_format: str
) -> None:
    """Given a bug in the middle of a stage, when its task runs, then the worker lives and no content is in the log."""
    producer.enqueue(turns("the secret of zanzibar"))
    settings = {
        "DATA": str(here.settings.data),
        "BROKER": here.settings.broker_url,
        "BROKER_PREFIX": here.settings.broker_prefix,
        "LOG_FORMAT": log_format,
    }
    environment = os.environ | {f"REVERIE_{name}": value for name, value in settings.items()}
    ran = subprocess.run([sys.executable, "-c", BUG], env=environment, capture_output=True, text=True, timeout=180)
    printed = ran.stdout + ran.stderr
    assert (ran.returncode, "task_crashed" in printed) == (0, True), printed
    assert "zanzibar" not in printed
    assert here.inbox.stats(WORKSPACE).size == 1


def test_two_producers_that_wait_for_the_same_message_are_both_told(here: Runtime) -> None:
    """Given one message sent by two, who wait for different states, when the stages run, then each is told its own."""
    (message,) = turns("sent twice")
    here.inbox.accept(WORKSPACE, [message], reply_to="one", wait="searchable")
    here.inbox.accept(WORKSPACE, [message], reply_to="two", wait="stored")
    run(contract.INGEST_MESSAGES, workspace=WORKSPACE)
    assert [outcome.state for outcome in here.inbox.wait_reply("two", 5)] == ["stored"]
    for task in STAGES[1:]:
        run(task, workspace=WORKSPACE)
    assert [outcome.state for outcome in here.inbox.wait_reply("one", 5)] == ["searchable"]
    assert not here.inbox.anyone_waiting(WORKSPACE)


def test_every_answer_that_a_producer_waits_for_comes(here: Runtime, producer: Producer) -> None:
    """Given producers that wait for stored and for searchable, when the stages run, then each is told in its turn."""
    stored, searchable = turns("for stored", "for searchable")
    here.inbox.accept(WORKSPACE, [stored], reply_to="one", wait="stored")
    here.inbox.accept(WORKSPACE, [searchable], reply_to="two", wait="searchable")
    run(contract.INGEST_MESSAGES, workspace=WORKSPACE)
    (outcome,) = here.inbox.wait_reply("one", 5)
    assert outcome is not None
    assert (outcome.id, outcome.state) == (stored.id, "stored")
    for task in STAGES[1:]:
        run(task, workspace=WORKSPACE)
    (outcome,) = here.inbox.wait_reply("two", 5)
    assert outcome is not None
    assert (outcome.id, outcome.state, outcome.degraded) == (searchable.id, "searchable", "")
    assert not here.inbox.anyone_waiting(WORKSPACE)
