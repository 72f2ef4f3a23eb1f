"""The status: true while things wait, bounded with many workspaces, and there when half of the system is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pysqlite3
import pytest
from msgspec import to_builtins
from sqlalchemy import text

from memory.memories.extraction_windows import progress_of
from memory.pipeline.broker_status import read_broker
from memory.status import StatusReader
from reverie import contract
from reverie.client import Reverie
from reverie.contract import ACCOUNT_STORE
from reverie.memories.types import Tier
from reverie.pipeline.status import PipelineStatus, StageStatus
from server.metrics import Metrics
from server.services import Services
from storage.memories.records import NewMemory
from storage.scheduling.records import NewReminder, NewSchedule
from storage.status import StoreCounts
from support.command_line import CommandLine
from support.stages import drain, heartbeat, store_inbox
from tasks.pipeline import embed_workspace
from worker.job_runs import run_job
from worker.reports import _embedder_state
from worker.runtime import Runtime
from worker.status import read_status_once

# Enough for a few workspaces on a machine that is busy; by default what takes longer than 2 s is counted as unread.
BUDGET_SECONDS = 60.0


@pytest.fixture
def reverie(runtime: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs `reverie` on the runtime's data and broker."""
    settings = runtime.settings
    monkeypatch.setenv("REVERIE_BROKER", settings.broker_url)
    monkeypatch.setenv("REVERIE_BROKER_PREFIX", settings.broker_prefix)
    return CommandLine(monkeypatch, capsys, "--data", str(settings.data))


@pytest.fixture
def moment(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> int:
    """The time by all runtimes and by the command line; it stands still, however slow the machine is."""
    now = runtime.now()
    monkeypatch.setattr(Runtime, "now", lambda _: now)
    monkeypatch.setattr("worker.status.now_micros", lambda: now)
    return now


def settle(runtime: Runtime, *names: str) -> None:
    """Have the files of stores be older than any write that their times might not show."""
    runtime.stores.close()
    long_ago = time.time() - 60
    for path in filter(Path.exists, map(runtime.stores.database_path, names)):
        os.utime(path, (long_ago, long_ago))


def read(runtime: Runtime) -> PipelineStatus:
    return reader(runtime).read(now=runtime.now(), budget_seconds=BUDGET_SECONDS)


def reader(runtime: Runtime) -> StatusReader:
    return StatusReader(runtime.stores, partial(read_broker, runtime.inbox, runtime.monitor), runtime.embedder)


def say(runtime: Runtime, *texts: str, workspace: str = "default") -> None:
    settings = runtime.settings
    with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix, workspace=workspace) as memory:
        memory.ingest("s", [{"role": "user", "content": text} for text in texts])


def test_the_status_follows_messages_through_the_stages(runtime: Runtime) -> None:
    """Given messages, then they are seen in the inbox, at a stage, and at last nowhere but in the lag."""
    say(runtime, "one", "two")
    status = read(runtime)
    assert (status.broker, status.queues["ingest"]) == ("up", 1)
    assert [(box.workspace, box.size) for box in status.inboxes] == [("default", 2)]

    store_inbox(runtime)
    status = read(runtime)
    assert status.inboxes == []
    assert status.stages["chunk"].waiting == 2
    assert status.stages["chunk"].oldest_age_seconds >= 0
    assert [line.name for line in status.workspaces] == ["default"]
    assert (status.wal_bytes > 0) == runtime.stores.database_path("default").exists()

    drain(runtime)
    status = read(runtime)
    assert sum(stage.waiting for stage in status.stages.values()) == 0
    assert status.lag.samples == 2
    assert status.lag.p99_seconds is not None
    assert status.embedder.state == "up"


def test_a_store_in_a_language_that_its_model_does_not_know_has_advice(runtime: Runtime, reverie: CommandLine) -> None:
    """Given Chinese messages with vectors of an English model, then status and command say what to run."""
    say(runtime, "下雨了", "我弟弟正在学弹钢琴", "plain English")
    store_inbox(runtime)
    drain(runtime)
    # The vectors of tests are of no language.
    assert "not in English: they are recalled, but no memories are learned" in read(runtime).workspaces[0].advice
    with runtime.stores.workspace("default").writing() as tx:
        tx.connection.execute(text("UPDATE indexes SET model = 'all-MiniLM-L6-v2' WHERE kind = 'vector'"))

    found = read(runtime).workspaces[0]

    assert found.outside_latin == pytest.approx(2 / 3, abs=0.01)
    assert "run `reverie --workspace default db reembed --model multilingual`" in found.advice
    assert f"Warning   Languages: default: {found.advice}" in reverie("status").out.replace("\n", " ")


def test_workers_and_jobs_are_listed(runtime: Runtime) -> None:
    """Given a worker's heartbeat and runs of jobs, then both are in the status, a failed run with its error."""
    now = time.time()
    runtime.monitor.heartbeat(heartbeat("embed@h", ["embed"], at=now))
    run_job(runtime, "good", every_seconds=15, work=lambda: {"done": 3})

    def fail() -> dict[str, int]:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_job(runtime, "bad", every_seconds=15, work=fail)
    status = read(runtime)
    assert [(worker.name, worker.progress_at) for worker in status.workers] == [("embed@h", None)]
    assert status.jobs["good"].counts["done"] == 3
    assert status.jobs["bad"].error == "ValueError: broken"


def test_memories_are_counted_and_those_of_the_account_are_waited_for(runtime: Runtime) -> None:
    """Given memories in a workspace and in the account, then both are told, and what waits in the account, too."""
    for name, content in (("default", "oat milk"), ("default", "tram 28"), (ACCOUNT_STORE, "short answers")):
        tier: Tier = "account" if name == ACCOUNT_STORE else "workspace"
        with runtime.stores.workspace(name).writing() as tx:
            tx.for_agent("ana").memories.add(
                NewMemory(id=content, tier=tier, lifetime="long_term", kind="preference", source="user",
                          content=content, importance=0.5, created_at=1), now=1,
            )  # fmt: skip
    status = read(runtime)
    assert (status.memories, status.account.memories, status.workspaces[0].memories) == (3, 1, 2)
    assert (status.stages["chunk-memories"].waiting, status.account.stages["chunk-memories"].waiting) == (3, 1)


def test_sessions_that_were_silent_wait_at_the_stage_of_extraction(runtime: Runtime) -> None:
    """Given a session from which nothing was extracted, then it waits once it was silent, until it has been read."""
    say(runtime, "I live in Porto.")
    drain(runtime)
    now, status_reader = runtime.now(), replace(reader(runtime), extraction_silence_seconds=30)

    def stage(seconds: float) -> StageStatus:
        settle(runtime, "default")
        at = now + int(seconds * 1_000_000)
        return status_reader.read(now=at, budget_seconds=BUDGET_SECONDS).stages["extract"]

    assert stage(0) == StageStatus()
    silent = stage(50)
    assert (silent.waiting, silent.held, silent.retrying, 0 < silent.oldest_age_seconds <= 21) == (1, 0, 0, True)
    assert read(runtime).stages["extract"] == StageStatus(), "extraction is switched off"
    with runtime.store("default").writing() as tx:
        session = progress_of(tx).waiting_session("ana", "s")
        assert session is not None
        progress_of(tx).attempts.begin([session.ref_code], now=now)
        progress_of(tx).postpone(session, now=now, first_seconds=60, longest_seconds=60)
    assert (stage(50).held, stage(50).retrying) == (1, 1)
    with runtime.store("default").writing() as tx:
        progress_of(tx).advance(session, to=session.last_sequence, now=now)
    assert stage(50) == StageStatus()


def test_without_a_broker_the_rest_is_told(runtime: Runtime, make_runtime: Callable[..., Runtime]) -> None:
    """Given stored messages and no broker, then the stages are told and the broker is down."""
    say(runtime, "one")
    store_inbox(runtime)
    status = read(make_runtime(broker="redis://127.0.0.1:1/0", embedding_provider="none"))
    assert (status.broker, status.queues, status.workers) == ("down", {}, [])
    assert status.stages["chunk"].waiting == 1
    assert status.embedder.state == "none"


def test_no_chunk_waits_for_an_embedder_that_is_switched_off(
    runtime: Runtime, make_runtime: Callable[..., Runtime]
) -> None:
    """Given chunks without vectors, then they wait with an embedder, and without one nothing does."""
    off = make_runtime(embedding_provider="none")
    say(off, "one")
    drain(off)
    assert read(runtime).stages["embed"].waiting == 1
    status = read(off)
    assert status.stages["embed"].waiting == 0
    assert [line.stages["embed"].waiting for line in status.workspaces] == [0]


def test_a_worker_that_has_not_loaded_its_model_says_nothing_of_it(make_runtime: Callable[..., Runtime]) -> None:
    """Given workers of which one has loaded the model, then that one alone says on what it runs."""
    idle, loaded = (make_runtime(embedding_provider="sentence-transformers") for _ in range(2))
    for runtime in (idle, loaded):
        runtime.make_all()
    assert loaded.embedder is not None
    loaded.embedder.load()
    assert _embedder_state(idle) == ""
    assert " on " in _embedder_state(loaded)
    assert "auto" not in _embedder_state(loaded)


def test_a_worker_that_can_embed_nothing_of_a_workspace_says_why(make_runtime: Callable[..., Runtime]) -> None:
    """Given vectors of one model and a worker of another, then its state names the workspace, until it can go on."""
    here, there = make_runtime(), make_runtime(embedding_provider="sentence-transformers")
    there.make_all()
    say(here, "one")
    drain(here)
    say(here, "two")
    drain(there)
    assert embed_workspace(there, "default", batch_size=8)["blocked"]
    assert ": blocked (workspace default has vectors of" in _embedder_state(there)
    there.embedding_blocked = (time.monotonic(), "it was")
    assert _embedder_state(there).endswith(": up")


@pytest.mark.sqlite("damages files")
def test_what_cannot_be_used_is_listed_with_its_error(runtime: Runtime) -> None:
    """Given a newer and a damaged workspace and a damaged account, then each is named and the others are read."""
    for name in ("good", "newer"):
        say(runtime, "one", workspace=name)
        store_inbox(runtime, name)
    runtime.stores.close()
    raw = pysqlite3.connect(runtime.stores.database_path("newer"))
    raw.execute("UPDATE schema_version SET version = '9999', oldest_program = '9999'")
    raw.commit()
    raw.close()
    damaged = runtime.stores.database_path("damaged")
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"no database" * 1_000)
    (runtime.settings.data / "account.db").write_bytes(b"no database" * 1_000)
    status = read(runtime)
    assert set(status.errors) == {"newer", "damaged", ACCOUNT_STORE}
    assert "9999" in status.errors["newer"]
    assert "damaged" in status.errors["damaged"]
    assert [bool(line.error) for line in status.workspaces] == [True, True, False]
    assert status.stages["chunk"].waiting == 1


def test_the_status_is_the_same_without_a_server(
    make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given models, quotas and a session that waits for extraction, then commands read what a server returns."""
    settings = dict[str, Any](
        language_model_base_url="http://127.0.0.1:9/v1", language_model="small", language_model_daily_tokens=1_000,
        reranker_base_url="http://127.0.0.1:9/v1", quota_messages=1, embedding_provider="sentence-transformers",
        extraction_debounce_seconds=0.0,
    )  # fmt: skip
    runtime = make_runtime(**settings)
    say(runtime, "I live in Porto.")
    drain(runtime)
    runtime.monitor.heartbeat(heartbeat("one", at=time.time()))
    settle(runtime, "default")
    now = runtime.now()
    monkeypatch.setattr("worker.status.now_micros", lambda: now)
    monkeypatch.setattr(Runtime, "now", lambda _: now)
    monkeypatch.setattr("server.services.STARTING_SECONDS", 0.0)
    returned = to_builtins(Services(make_runtime(**settings)).status())
    assert returned["stages"]["extract"]["waiting"] == 1
    assert to_builtins(read_status_once(runtime.settings)) == returned


@pytest.mark.sqlite("damages a file")
def test_a_workspace_may_have_the_name_account(runtime: Runtime, reverie: CommandLine) -> None:
    """Given a damaged workspace `account`, then it hides nothing of the account, in the status and after migrations."""
    runtime.stores.account()
    path = runtime.stores.database_path("account")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database, and much longer than its header would be: " * 20)
    status = read(runtime)
    assert (list(status.errors), "messages" in status.account.stored) == (["account"], True)
    migrated = json.loads(reverie("db", "migrate", "--json").out)
    assert (list(migrated["migrated"]), list(migrated["failed"])) == ([ACCOUNT_STORE], ["account"])


def test_a_workspace_that_was_not_written_is_not_read_again(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given settled workspaces and no time left, then what is remembered is told, and the rest counted as unread."""
    for name in ("a", "b"):
        say(runtime, "one", workspace=name)
        store_inbox(runtime, name)
    runtime.stores.account()
    settle(runtime, "a", "b", ACCOUNT_STORE)
    status_reader = reader(runtime)
    assert status_reader.read(now=runtime.now(), budget_seconds=BUDGET_SECONDS).stages["chunk"].waiting == 2

    def never(name: str) -> StoreCounts:
        raise AssertionError(f"{name} is read again")

    with monkeypatch.context() as patch:
        patch.setattr(runtime.stores, "counts", never)
        assert status_reader.read(now=runtime.now(), budget_seconds=BUDGET_SECONDS).stages["chunk"].waiting == 2

    status = reader(runtime).read(now=runtime.now(), budget_seconds=-1)
    assert (status.workspaces_total, status.workspaces_unread) == (2, 2)
    say(runtime, "two", workspace="b")
    store_inbox(runtime, "b")
    assert status_reader.read(now=runtime.now(), budget_seconds=BUDGET_SECONDS).stages["chunk"].waiting == 3


def schedule(runtime: Runtime, *, due_in_seconds: float, workspace: str = "default") -> None:
    """An hourly schedule as it stands in the store some time before or after it is due."""
    new = NewSchedule(
        id="hourly", user="ana", name=None, goal="look", cadence='{"type":"cron","expression":"0 * * * *"}',
        executor='{"type":"llm"}', policy="always", timeout_seconds=60, recall_limit=0, channel=None, session=None,
        next_run_at=runtime.now() + round(due_in_seconds * 1_000_000),
    )  # fmt: skip
    with runtime.stores.workspace(workspace).writing() as tx:
        tx.for_agent("ana").schedules.add(new, now=runtime.now())


@pytest.mark.usefixtures("moment")
def test_schedules_of_all_workspaces_are_told(runtime: Runtime) -> None:
    """Given a schedule that is overdue and one that is not, then both are counted, and the metrics say so."""
    schedule(runtime, due_in_seconds=-90, workspace="a")
    schedule(runtime, due_in_seconds=3_600, workspace="b")
    scheduling = read(runtime).time
    assert (scheduling.schedules["active"], scheduling.schedules_overdue) == (2, 1)
    assert scheduling.schedules_oldest_overdue_seconds == 90
    text = Metrics(lambda: read(runtime)).text().decode()
    for line in (
        'reverie_schedules{status="active"} 2.0',
        'reverie_schedules{status="failed"} 0.0',
        "reverie_schedules_overdue 1.0",
        'reverie_schedule_runs_open{status="pending"} 0.0',
        "reverie_schedule_runs_oldest_pending_seconds 0.0",
        "reverie_schedule_runs_failed_last_day 0.0",
        "reverie_reminders_due 0.0",
        "reverie_reminders_oldest_due_seconds 0.0",
        "reverie_notifications_waiting 0.0",
        "reverie_pushes_put_back 0.0",
    ):
        assert line in text
    assert "reverie_schedule_start_lag_seconds{" not in text  # nothing was started: not known is no zero


def test_a_schedule_becomes_overdue_where_nobody_writes(
    runtime: Runtime, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a workspace that is remembered and not read again, then what becomes due in it is told all the same."""
    schedule(runtime, due_in_seconds=60)
    settle(runtime, "default")
    status_reader = reader(runtime)
    assert status_reader.read(now=moment, budget_seconds=BUDGET_SECONDS).time.schedules_overdue == 0

    counts = runtime.stores.counts

    def of_the_account(name: str) -> StoreCounts:
        assert name == ACCOUNT_STORE, "read again"
        return counts(name)

    monkeypatch.setattr(runtime.stores, "counts", of_the_account)
    scheduling = status_reader.read(now=moment + 100_000_000, budget_seconds=BUDGET_SECONDS).time
    assert scheduling.schedules_overdue == 1
    assert scheduling.schedules_oldest_overdue_seconds == 40


@pytest.mark.sqlite("opens an older file")
def test_a_workspace_from_before_there_were_schedules_is_listed(runtime: Runtime) -> None:
    """Given a workspace that is still to be migrated, then it is named with what to do, and the others are told."""
    schedule(runtime, due_in_seconds=-90, workspace="new")
    schedule(runtime, due_in_seconds=-90, workspace="old")
    runtime.stores.close()
    raw = pysqlite3.connect(runtime.stores.database_path("old"))
    for table in ("schedule_runs", "schedules", "reminders", "notifications"):
        raw.execute(f"DROP TABLE {table}")
    raw.execute("DELETE FROM schema_version WHERE line = 'workspace'")
    raw.commit()
    raw.close()
    status = read(runtime)
    assert set(status.errors) == {"old"}
    assert "reverie db migrate" in status.errors["old"]
    assert status.time.schedules_overdue == 1


def live_worker(runtime: Runtime) -> None:
    """A worker for all queues and beat, which count as alive for the next half minute."""
    now = time.time()
    for name, queues in (("w@h", list(contract.QUEUES)), ("beat@h", [])):
        runtime.monitor.heartbeat(heartbeat(name, queues, at=now))


@pytest.mark.usefixtures("moment")
def test_the_command_line_tells_of_time_and_finds_fault_with_what_is_late(
    runtime: Runtime, reverie: CommandLine
) -> None:
    """Given live workers and a schedule 30 s late, then all is well; 90 s late, `--check` says what to look at."""
    live_worker(runtime)
    schedule(runtime, due_in_seconds=-30, workspace="a")
    ended = reverie("status", "--check")
    assert ended.code == 0, ended.out
    assert "Schedules 1 active; 1 schedule overdue" in ended.out
    schedule(runtime, due_in_seconds=-90, workspace="b")
    ended = reverie("status", "--check")
    assert ended.code == 1
    assert "Problem   Schedules: a schedule is overdue by 90 s" in ended.out
    assert reverie("status", "--json").json["time"]["schedules_overdue"] == 2


def test_reminders_are_late_only_where_they_are_pushed(
    runtime: Runtime, moment: int, reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a reminder that nobody took for minutes, then `--check` finds fault where a notifier should have."""
    live_worker(runtime)
    due_at = moment - 300_000_000
    with runtime.stores.workspace("default").writing() as tx:
        tx.for_agent("ana").reminders.add(NewReminder("r", None, "s", None, "kate", "call", "auto", due_at), now=due_at)
    ended = reverie("status", "--check")
    assert (ended.code, "Reminders 1 due" in ended.out) == (0, True)
    monkeypatch.setenv("REVERIE_NOTIFIER_WEBHOOK_URL", "https://example.org/notify")
    ended = reverie("status", "--check")
    assert (ended.code, "a reminder has waited to be pushed for 300 s" in ended.out) == (1, True)


def test_a_server_that_takes_connections_and_does_not_answer_is_told_in_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a server that is stopped, when the status is asked, then the command says so, and does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("REVERIE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        ended = CommandLine(monkeypatch, capsys)("status", "--check")
    assert (ended.code, time.monotonic() - began < 30) == (1, True)
    assert "did not answer within 15 s" in ended.err


def test_logs_that_cannot_be_written_are_a_fault(runtime: Runtime, reverie: CommandLine) -> None:
    """Given a log in whose place is a folder, then the status names it as a fault, and its check fails."""
    runtime.stores.account()
    live_worker(runtime)
    assert reverie("status", "--check").code == 0
    (runtime.settings.data / "logs" / "server.log").mkdir(parents=True)
    ended = reverie("status", "--check")
    assert (ended.code, "Problem   logs/server.log cannot be written" in ended.out) == (1, True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_streams_are_closed_works(closed: str, runtime: Runtime, tmp_path: Path) -> None:
    """Given closed standard streams, then a command does its work, prints where it can, and ends with its code."""
    data = str(runtime.settings.data)
    runtime.stores.account()
    files = tmp_path / "out", tmp_path / "err"
    with files[0].open("wb") as out, files[1].open("wb") as err:
        ended = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "cli", "--data", data, "status", "--check"],
            stdout=out, stderr=err, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, timeout=120, check=False,
        )  # fmt: skip
    assert ended.returncode == 1, files[1].read_text()  # no worker runs
    assert ("No worker is alive" in files[0].read_text()) == (">&-" not in closed.replace("2>&-", ""))
    assert "Traceback" not in files[1].read_text()


def test_reading_the_status_opens_no_store_and_makes_no_workspace(runtime: Runtime) -> None:
    """Given workspaces that are not open, then the status leaves the open ones as they are."""
    for number in range(20):
        say(runtime, "one", workspace=f"w{number}")
        store_inbox(runtime, f"w{number}")
    before = runtime.stores._open.names()
    status = read(runtime)
    assert status.stages["chunk"].waiting == 20
    assert runtime.stores._open.names() == before
