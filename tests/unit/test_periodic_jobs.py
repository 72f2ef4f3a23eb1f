"""When jobs run: after the first start, after a stop, and once however many beats there are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule

from beat_schedule import PERIODIC_JOBS
from reverie import contract
from reverie.clock import to_micros
from reverie.errors import Unavailable
from storage.stores import Stores
from storage.upkeep.jobs import ABANDONED_AFTER_SECONDS, RUNS_KEPT_PER_JOB, JobRun, JobRuns
from worker.app import app
from worker.app import settings as app_settings
from worker.beat import CatchUpScheduler, first_due
from worker.job_runs import MOST_NAMED, bounded, run_job
from worker.runtime import Runtime

NOW = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = 1_000_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """A data folder with an account."""
    stores = Stores(tmp_path)
    yield stores
    stores.close()


@pytest.fixture
def jobs(stores: Stores) -> JobRuns:
    """The runs of periodic jobs."""
    return stores.jobs()


def last(ago: timedelta) -> JobRun:
    return JobRun("job", 1, to_micros(NOW - ago), None, {}, None)


def due_in(last_run: JobRun | None, *, first_after: timedelta = timedelta()) -> timedelta:
    return first_due(HOUR, first_after, last_run, NOW) + HOUR - NOW


def test_a_job_that_never_ran_waits_its_first_time() -> None:
    """Given no run, then it is due after `first_after`, at once where that is nothing."""
    assert due_in(None) == timedelta()
    assert due_in(None, first_after=timedelta(minutes=5)) == timedelta(minutes=5)


def test_a_job_is_due_one_interval_after_its_last_run_however_often_beat_is_restarted() -> None:
    """Given a run twenty minutes ago, then forty minutes are left, whatever `first_after` says."""
    assert due_in(last(timedelta(minutes=20)), first_after=timedelta(hours=9)) == timedelta(minutes=40)


def test_a_job_missed_while_everything_was_down_is_due_at_once() -> None:
    """Given a run long ago, then it is overdue, and runs once, not once for each time missed."""
    assert due_in(last(timedelta(days=9))) < timedelta()


def test_a_run_from_the_future_holds_a_job_up_for_one_interval_at_most() -> None:
    """Given a clock that was set back, then the job is due one interval from now."""
    assert due_in(last(timedelta(days=-9))) == HOUR


@pytest.mark.parametrize(("webhook", "seconds"), [(None, 60), ("https://notes.example/due", 5)])
def test_reminders_are_looked_at_often_only_if_they_are_pushed(webhook: str | None, seconds: int) -> None:
    """Given no webhook, by which agents fetch what is due, then the job that pushes it runs once a minute only."""
    (job,) = (job for job in PERIODIC_JOBS if job.task == contract.DELIVER_REMINDERS)
    assert job.every(app_settings.model_copy(update={"notifier_webhook_url": webhook})) == timedelta(seconds=seconds)


def test_of_two_beats_one_may_run_a_job(jobs: JobRuns) -> None:
    """Given one period of one job, when two ask, then one may; the next period and other jobs are their own."""
    assert jobs.claim("sweep", period=7, now=SECOND)
    assert not jobs.claim("sweep", period=7, now=2 * SECOND)
    assert jobs.claim("sweep", period=8, now=2 * SECOND)
    assert jobs.claim("other", period=7, now=2 * SECOND)


def test_a_run_that_ended_is_not_run_again_however_late_its_twin_comes(jobs: JobRuns) -> None:
    """Given a finished run, when the delayed task of the same period comes, then it may not."""
    jobs.claim("sweep", period=7, now=SECOND)
    jobs.finish("sweep", period=7, now=2 * SECOND, counts={"done": 3})
    assert not jobs.claim("sweep", period=7, now=10**12 * SECOND)
    run = jobs.last_runs()["sweep"]
    assert (run.started_at, run.finished_at, run.counts, run.error) == (SECOND, 2 * SECOND, {"done": 3}, None)


def test_a_run_whose_process_was_killed_may_be_claimed_again_after_a_while(jobs: JobRuns) -> None:
    """Given a run that never ended, then its period is free again after ten minutes and not before."""
    jobs.claim("vacuum", period=7, now=SECOND)
    later = SECOND + ABANDONED_AFTER_SECONDS * SECOND
    assert not jobs.claim("vacuum", period=7, now=later)
    assert jobs.claim("vacuum", period=7, now=later + 1)
    assert not jobs.claim("vacuum", period=7, now=later + 2)


def test_how_a_run_failed_is_kept(jobs: JobRuns) -> None:
    """Given a run that raised, then its error is there to be read, until the next run."""
    jobs.claim("sweep", period=7, now=SECOND)
    jobs.finish("sweep", period=7, now=2 * SECOND, error="StoreUnavailable: full")
    assert jobs.last_runs()["sweep"].error == "StoreUnavailable: full"


def test_only_the_newest_runs_are_kept(jobs: JobRuns, stores: Stores) -> None:
    """Given more runs than are kept, then the oldest are gone and another job's are not."""
    jobs.claim("other", period=0, now=1)
    with stores.account().atomic() as connection:
        for period in range(RUNS_KEPT_PER_JOB + 5):
            connection.exec_driver_sql(
                "INSERT INTO job_runs (job, period, started_at) VALUES ('sweep', ?, ?)", (period, period)
            )
    jobs.claim("sweep", period=10**6, now=10**6)
    jobs.finish("sweep", period=10**6, now=10**6 + 1)
    with stores.account().reading() as connection:
        rows = connection.exec_driver_sql("SELECT job, count(*), max(period) FROM job_runs GROUP BY job ORDER BY job")
        assert [tuple(row) for row in rows] == [("other", 1, 0), ("sweep", RUNS_KEPT_PER_JOB, 10**6)]


def test_the_registered_tasks_are_exactly_those_of_the_contract() -> None:
    """Given every module of tasks, then no name differs between contract, queues and workers."""
    app.loader.import_default_modules()
    named = {value for name, value in vars(contract).items() if name.isupper() and str(value).startswith("reverie.")}
    assert {name for name in app.tasks if not name.startswith("celery.")} == named == set(contract.TASK_QUEUES)


def test_every_task_goes_to_the_queue_of_the_contract_and_every_queue_exists() -> None:
    """Given a task, then its route and the contract name one queue, and that one is consumed."""
    app.loader.import_default_modules()
    assert set(contract.TASK_QUEUES.values()) <= set(contract.QUEUES)
    for name, queue in contract.TASK_QUEUES.items():
        assert app.amqp.router.route({}, name)["queue"].name == queue


def test_every_entry_of_the_table_names_a_task_with_a_queue_an_interval_and_a_reason() -> None:
    """Given the table of periodic jobs, then each row is of a real task, once, and says what it does."""
    assert len({job.task for job in PERIODIC_JOBS}) == len(PERIODIC_JOBS)
    for job in PERIODIC_JOBS:
        assert job.task in contract.TASK_QUEUES
        assert job.every(app_settings) >= timedelta(seconds=1)
        assert job.first_after >= timedelta()
        assert job.description


def test_the_backfill_runs_a_minute_after_the_first_start_and_each_half_hour() -> None:
    """Given the settings as they come, then I13 holds."""
    (backfill,) = (job for job in PERIODIC_JOBS if job.task == contract.BACKFILL_EMBEDDINGS)
    assert (backfill.first_after, backfill.every(app_settings)) == (timedelta(seconds=60), timedelta(minutes=30))


def test_a_clock_that_was_set_back_holds_up_no_job() -> None:
    """Given a job that ran at a time which is now to come, when the clock ticks, it waits one interval from now."""
    beat = CatchUpScheduler(app=app, lazy=True)
    now = datetime.now(UTC)
    every = schedule(run_every=timedelta(seconds=5), app=app)
    for name, ran_at in (("ahead", now + timedelta(hours=3)), ("as usual", now - timedelta(seconds=2))):
        beat.schedule[name] = ScheduleEntry(name=name, task=name, schedule=every, last_run_at=ran_at, app=app)
    beat._heap = []
    beat._follow_clock()
    assert now <= beat.schedule["ahead"].last_run_at <= datetime.now(UTC)
    assert beat.schedule["as usual"].last_run_at == now - timedelta(seconds=2)
    assert beat._heap is None, "the order in which jobs are due is made anew"


def test_a_first_start_is_not_taken_for_a_clock_that_was_set_back(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a job that first runs later than after its interval, when beat starts, then its first run stays put."""
    monkeypatch.setattr("worker.beat.current_runtime", lambda: SimpleNamespace(stores=stores))
    beat = CatchUpScheduler(app=app, lazy=True)
    beat.setup_schedule()
    late = beat.schedule[contract.EXTRACT_MEMORIES].last_run_at
    assert late > datetime.now(UTC), "the first run is to be later than after one interval"
    beat._follow_clock()
    assert beat.schedule[contract.EXTRACT_MEMORIES].last_run_at == late


def test_beat_sleeps_until_a_job_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a job that is due within Celery's 10 ms of grace, then a few ticks send it, not one after the other."""
    monkeypatch.setattr("worker.beat.current_runtime", SimpleNamespace)
    monkeypatch.setattr("worker.beat.send_heartbeat", lambda *_, **__: None)
    sent: list[str] = []
    monkeypatch.setattr(CatchUpScheduler, "apply_entry", lambda _, entry, **__: sent.append(entry.name))
    beat = CatchUpScheduler(app=app, lazy=True)
    beat._heartbeat_at = beat._started_at = 0.0
    every = schedule(run_every=timedelta(seconds=5), app=app)
    ran_at = datetime.now(UTC) - timedelta(seconds=4.98)
    beat.schedule["job"] = ScheduleEntry(name="job", task="job", schedule=every, last_run_at=ran_at, app=app)
    ticks = 0
    while not sent:
        time.sleep(max(0.0, beat.tick()))
        ticks += 1
    assert ticks < 10


def test_the_record_of_a_run_names_few_workspaces_and_those_with_trouble_first() -> None:
    """Given a run over 10,000 workspaces, then its record stays small, and what is wrong is in it."""
    lines: dict[str, Any] = {f"w{number}": {"looked_at": 1} for number in range(10_000)}
    lines["w9000"] = {"error": "w9000/memory.db is damaged"}
    kept = bounded({"looked_at": 10_000, "stores": lines, "unreadable": {"a": "why"}})
    assert len(kept["stores"]) == MOST_NAMED
    assert kept["stores"]["w9000"] == lines["w9000"]
    assert kept["stores_not_named"] == 10_000 - MOST_NAMED
    assert (kept["looked_at"], kept["unreadable"]) == (10_000, {"a": "why"})


def test_a_run_that_was_killed_has_failed_with_the_reason(jobs: JobRuns) -> None:
    """Given a run killed at its limit, then it is shown as failed; one that has ended stays as it is."""
    jobs.claim("sweep", period=7, now=SECOND)
    assert jobs.fail_killed("sweep", now=301 * SECOND, error="killed after 300 s")
    run = jobs.last_runs()["sweep"]
    assert (run.finished_at, run.error) == (301 * SECOND, "killed after 300 s")
    assert not jobs.fail_killed("sweep", now=302 * SECOND, error="again")
    assert not jobs.fail_killed("other", now=302 * SECOND, error="none")


@pytest.mark.parametrize("stopped_first", [True, False])
def test_the_reason_of_a_kill_stays_whichever_process_stores_first(jobs: JobRuns, *, stopped_first: bool) -> None:
    """Given a child that is told to end and the parent that knows why, then the run shows the parent's reason."""
    jobs.claim("sweep", period=7, now=SECOND)
    if stopped_first:
        assert jobs.stop("sweep", period=7, now=2 * SECOND)
        assert "told to end" in (jobs.last_runs()["sweep"].error or "")
    assert jobs.fail_killed("sweep", now=3 * SECOND, error="killed after 300 s")
    assert not jobs.stop("sweep", period=7, now=4 * SECOND)
    run = jobs.last_runs()["sweep"]
    assert (run.finished_at, run.error) == (3 * SECOND, "killed after 300 s")


@pytest.mark.parametrize("end", [SystemExit(-241), KeyboardInterrupt()])
def test_a_run_whose_process_is_told_to_end_says_so(runtime: Runtime, end: BaseException) -> None:
    """Given a job in whose middle its process is told to end, then the run has ended and says what happened."""

    def work() -> dict[str, Any]:
        raise end

    with pytest.raises(type(end)):
        run_job(runtime, "sweep", every_seconds=15, work=work)
    run = runtime.stores.jobs().last_runs()["sweep"]
    assert run.error == "it was stopped: its process was told to end"
    assert run.finished_at is not None


def test_a_run_that_never_ended_is_shown_as_failed_and_kept_as_such(jobs: JobRuns) -> None:
    """Given a worker that was killed with its children, then its run counts as failed once it must have ended."""
    jobs.claim("sweep", period=7, now=SECOND)
    late = SECOND + ABANDONED_AFTER_SECONDS * SECOND
    assert jobs.last_runs(now=late)["sweep"].error is None
    assert "did not end" in (jobs.last_runs(now=late + 1)["sweep"].error or "")
    jobs.claim("sweep", period=8, now=late + 2)
    assert jobs.last_runs(now=late + 3)["sweep"].error is None
    with jobs._account.reading() as connection:
        errors = connection.exec_driver_sql("SELECT error FROM job_runs ORDER BY id").scalars().all()
    assert ["did not end" in (error or "") for error in errors] == [True, False]


@pytest.mark.parametrize(("waiting", "sent"), [(0, 1), (999, 1), (1_000, 0), (None, 0)])
def test_beat_sends_nothing_that_nobody_takes(monkeypatch: pytest.MonkeyPatch, waiting: int | None, sent: int) -> None:
    """Given a queue that workers have left, or a broker that does not answer, then no further task is sent to it."""
    tasks: list[str] = []

    class Depths:
        def queue_depth(self, queue: str) -> int:
            if waiting is None:
                raise Unavailable("the broker did not answer in time")
            assert queue == contract.QUEUE_INDEX
            return waiting

    monkeypatch.setattr("worker.beat.current_runtime", lambda: SimpleNamespace(monitor=Depths()))
    monkeypatch.setattr(Scheduler, "apply_async", lambda _, entry, **__: tasks.append(entry.task))
    scheduler = CatchUpScheduler.__new__(CatchUpScheduler)
    entry = SimpleNamespace(name="n", task=contract.SWEEP_STAGES, options={"queue": contract.QUEUE_INDEX})
    scheduler.apply_entry(entry)
    assert len(tasks) == sent
