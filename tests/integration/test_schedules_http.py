"""Schedules and their runs through the public faces: client, asyncio client and HTTP; the workers are played here."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from cli import scheduling
from memory.scheduling.executing import AttemptLimits, Delegated, ExecutionSettings, Outcome, execute_run
from memory.scheduling.rules import RunResult
from reverie import (
    AsyncReverie,
    Cron,
    Interval,
    LlmExecutor,
    Once,
    Reverie,
    Schedule,
    ScheduleRun,
    TaskExecutor,
    WebhookExecutor,
    format_in_timezone,
    next_run_for_cadence,
    parse_cadence,
    validate_cadence,
)
from reverie.clock import now_micros
from reverie.errors import Conflict, NotFound, Rejected
from support.command_line import CommandLine
from support.http import running_server
from worker.runtime import Runtime

HEADERS = {"X-Reverie-Agent": "ana"}
HOOK = "https://example.org/hook"
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over an empty data folder."""
    with running_server(runtime) as address:
        yield address


@pytest.fixture
def http(url: str) -> Iterator[httpx2.Client]:
    """Plain HTTP as ana."""
    with httpx2.Client(base_url=url, headers=HEADERS) as client:
        yield client


def work(runtime: Runtime, run_id: str, outcome: Outcome) -> None:
    """Do what a worker does for a run."""
    execute_run(
        runtime.store("default"),
        run_id,
        lambda _: outcome,
        ExecutionSettings(
            limits=AttemptLimits(), rules=runtime.settings.schedule_rules, now=runtime.now, clock=now_micros
        ),
    )


@pytest.fixture
def reverie(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command line as ana against the server."""
    monkeypatch.setenv("REVERIE_URL", url)
    return CommandLine(monkeypatch, capsys, "--agent", "ana")


def test_the_command_line_asks_the_server(reverie: CommandLine, ana: Reverie, runtime: Runtime) -> None:
    """Given a server, then the commands for schedules change what is there, filter it, and run it."""
    added = reverie("schedules", "add", "water the plants", "--every", "90m", "--webhook", HOOK)
    assert (added.code, "no worker that runs schedules is alive" in added.err) == (0, True)
    (schedule,) = ana.schedules.list()
    assert schedule.id in added.out
    ana.schedules.add("later", at=SOON, webhook=HOOK)
    assert reverie("schedules", "pause", schedule.id).out == f"Schedule {schedule.id} is paused.\n"
    filtered = (
        "--status",
        "paused",
        "--status",
        "failed",
        "--cadence",
        "interval",
        "--due-after",
        "2020-01-01T00:00:00Z",
    )
    assert reverie("schedules", "list", *filtered[:6], "--json").json["schedules"][0]["id"] == schedule.id
    assert reverie("schedules", "list", *filtered, "--json").json["total"] == 0  # it has no next run
    assert (
        reverie("schedules", "list", "--executor", "llm").out
        == "Agent ana has no such schedules in workspace default.\n"
    )
    assert "is active and fires next" in reverie("schedules", "resume", schedule.id).out
    assert reverie("schedules", "update", schedule.id, "--name", "plants", "--json").json["name"] == "plants"
    assert len(reverie("schedules", "next", schedule.id, "--json").json["at"]) == 5
    started = reverie("schedules", "run-now", schedule.id)
    (run,) = reverie("schedules", "runs", schedule.id, "--json").json
    assert (started.out, started.err) == (f"Run {run['id']} has started.\n", "")
    work(runtime, run["id"], RunResult("success", output="watered"))
    assert reverie("schedules", "run", run["id"]).out.endswith("watered\n")
    ended = reverie("schedules", "cancel", run["id"])
    assert (ended.code, "has ended: success" in ended.err) == (1, True)
    (notification,) = reverie("notifications", "list", "--json").json["notifications"]
    assert reverie("notifications", "acknowledge", notification["id"]).out == "1 notification acknowledged.\n"
    assert reverie("notifications", "acknowledge", "--all", "--json").json == {"acknowledged": 0}
    assert reverie("schedules", "delete", schedule.id, "--yes").out == "Deleted.\n"
    again = reverie("schedules", "delete", schedule.id, "--yes")
    assert (again.code, again.err) == (1, f"reverie: agent ana has no schedule {schedule.id!r}\n")


def test_the_command_line_warns_of_the_servers_missing_model(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a server without a language model, then the command says so, whatever its own environment names."""
    monkeypatch.setenv("REVERIE_LANGUAGE_MODEL_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("REVERIE_LANGUAGE_MODEL", "small")
    ended = reverie("schedules", "add", "summarise what is open", "--every", "1h")
    assert (ended.code, "no language model is configured" in ended.err) == (0, True)


def test_a_run_is_waited_for_by_the_command_line(
    reverie: CommandLine, ana: Reverie, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given --wait, when a worker has executed the run, then the command shows how it ended."""
    schedule = ana.schedules.add("x", every=3_600, webhook=HOOK)
    wait = scheduling.wait_until_ended

    def wait_for_worker(read: Callable[[], ScheduleRun], **keywords: Any) -> ScheduleRun:
        return wait(read, pause=lambda _: work(runtime, read().id, RunResult("failed", error="no water")), **keywords)

    monkeypatch.setattr(scheduling, "wait_until_ended", wait_for_worker)
    ended = reverie("schedules", "run-now", schedule.id, "--wait")
    assert (ended.code, "no water" in ended.out) == (1, True)


def test_the_times_of_a_cadence_are_shown_before_a_schedule_has_it(ana: Reverie, reverie: CommandLine) -> None:
    """Given a cadence, then its next times are returned as those of a schedule are, and a wrong one is refused."""
    shown = ana.schedules.preview_runs(cron="0 9 29 2 *", tz="Europe/Lisbon", count=2)
    assert [(at.month, at.day, at.hour) for at in shown.at] == [(2, 29, 9)] * 2
    assert all(local.endswith("09:00 WET (Europe/Lisbon)") for local in shown.local)
    assert ana.schedules.preview_runs(at=SOON).at == [SOON]
    assert len(reverie("schedules", "next", "--every", "1d", "--json").json["at"]) == 5
    for wrong, field in (
        ({}, "cron"),
        ({"cron": "@daily", "every": 3_600}, "every"),
        ({"every": 30}, "every"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "at"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "@daily", "tz": "Europe/Lissabon"}, "tz"),
        ({"cron": "@daily", "count": 101}, "count"),
    ):
        with pytest.raises(Rejected) as caught:
            ana.schedules.preview_runs(**wrong)
        assert caught.value.field == field
    assert ana.schedules.count() == 0


def test_a_schedule_from_making_to_deleting(ana: Reverie) -> None:
    """Given the calls of the client, then a schedule is made, read, found, changed, paused, resumed and deleted."""
    made = ana.schedules.add(
        "summarise what is open",
        cron="0  9 * * 1-5",
        tz="Europe/Lisbon",
        webhook=HOOK,
        user="kate",
        name="morning",
        notify="on_failure",
        channel="kitchen",
        session="s",
        timeout_seconds=60,
        recall_limit=0,
    )
    assert made.cadence == Cron("0 9 * * 1-5", "Europe/Lisbon")
    assert made.executor == WebhookExecutor(url=HOOK)
    assert (made.agent, made.user, made.name, made.notification_policy) == ("ana", "kate", "morning", "on_failure")
    assert (made.channel, made.session, made.timeout_seconds, made.recall_limit) == ("kitchen", "s", 60, 0)
    assert made.next_run_at == next_run_for_cadence(made.cadence, made.created_at)
    assert ana.schedules.get(made.id, user="kate") == made
    assert list(ana.schedules.list(user="kate")) == [made]
    changed = ana.schedules.update(made.id, user="kate", goal="say what is late", name=None, notify="always", every=600)
    assert (changed.goal, changed.name, changed.channel) == ("say what is late", None, "kitchen")
    assert isinstance(changed.cadence, Interval)
    assert changed.executor == made.executor
    upcoming = ana.schedules.next_runs(made.id, 2, user="kate")
    assert upcoming.at[0] == changed.next_run_at == changed.updated_at + timedelta(seconds=600)
    assert upcoming.local == [format_in_timezone(at, changed.cadence) for at in upcoming.at]
    assert len(ana.schedules.next_runs(made.id, user="kate").at) == 5
    paused = ana.schedules.pause(made.id, user="kate")
    assert (paused.status, paused.next_run_at) == ("paused", None)
    assert ana.schedules.next_runs(made.id, user="kate").at == []
    assert ana.schedules.resume(made.id, user="kate").status == "active"
    assert ana.schedules.delete(made.id, user="kate")
    assert not ana.schedules.delete(made.id, user="kate")
    with pytest.raises(NotFound, match=made.id):
        ana.schedules.get(made.id, user="kate")


def test_each_cadence_and_executor_can_be_had(ana: Reverie) -> None:
    """Given every way to say when and who, then each is kept; each of them can take another's place."""
    once = ana.schedules.add("x", at=SOON, tz="Europe/Lisbon", task="agent.work", queue="agents")
    assert (once.cadence, once.next_run_at) == (Once(SOON, "Europe/Lisbon"), SOON)
    assert once.executor == TaskExecutor(task="agent.work", queue="agents")
    same = ana.schedules.add("x", at=SOON.isoformat())
    assert (same.next_run_at, same.executor, same.user) == (SOON, LlmExecutor(), None)
    often = ana.schedules.add("x", every=90)
    assert often.cadence == Interval(90, "UTC", often.created_at)
    assert ana.schedules.update(once.id, llm=True).executor == LlmExecutor()
    assert ana.schedules.update(once.id, webhook=HOOK).executor == WebhookExecutor(url=HOOK)
    back = ana.schedules.update(once.id, task="agent.other", queue="agents", cron="@hourly", tz="Asia/Tokyo")
    assert (back.executor, back.cadence) == (
        TaskExecutor(task="agent.other", queue="agents"),
        Cron("0 * * * *", "Asia/Tokyo"),
    )


def test_schedules_are_found_and_counted_by_all_that_is_given(ana: Reverie) -> None:
    """Given schedules that differ, then filters, pages and counts agree."""
    a = ana.schedules.add("water the plants", cron="0 9 * * *", channel="kitchen", session="s", name="plants").id
    b = ana.schedules.add("call the dentist", at=SOON, webhook=HOOK, user="kate").id
    c = ana.schedules.add("pay the dentist", every=604_800, task="work", queue="q").id
    ana.schedules.pause(c)
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [c, b, a]),
        ({"status": "paused"}, [c]),
        ({"status": ["paused", "active"]}, [c, b, a]),
        ({"status": []}, [c, b, a]),
        ({"name": "plants"}, [a]),
        ({"text": "DENTIST"}, [c, b]),
        ({"text": "dentist", "executor": "task"}, [c]),
        ({"cadence": "once"}, [b]),
        ({"channel": "kitchen", "session": "s"}, [a]),
        ({"due_after": SOON, "due_before": SOON + timedelta(seconds=1)}, [b]),
        ({"due_before": "2020-01-01T00:00:00Z"}, []),
    ]
    for given, ids in wanted:
        for who in ({"user": "kate"}, {"all_users": True}):
            page = ana.schedules.list(**given, **who)
            assert ([schedule.id for schedule in page], page.total) == (ids, len(ids)), given
            assert ana.schedules.count(**given, **who) == len(ids), given
    for other in ({}, {"user": "luis"}):
        assert [schedule.id for schedule in ana.schedules.list(**other)] == [c, a]
        assert ana.schedules.count(**other) == 2
    page = ana.schedules.list(1, 1, all_users=True)
    assert ([schedule.id for schedule in page], len(page), page.total) == ([b], 1, 3)
    for wrong in ("status", "executor", "cadence", "due_before", "due_after"):
        for call in (ana.schedules.list, ana.schedules.count):
            with pytest.raises(Rejected) as caught:
                call(**{wrong: "no such"})  # type: ignore[arg-type]
            assert caught.value.field == wrong
    with pytest.raises(Rejected, match="needs a time zone"):
        ana.schedules.list(due_before=datetime(2027, 1, 1))


def test_a_run_by_hand_is_sent_to_the_workers_and_cancelled(ana: Reverie, runtime: Runtime) -> None:
    """Given a schedule, when run by hand, then a task for the run lies in the queue of schedules; a second one is a
    conflict until it is cancelled, and its history has both."""
    made = ana.schedules.add("x", every=600, webhook=HOOK)
    run = ana.schedules.run_now(made.id)
    assert (run.schedule_id, run.status, run.trigger) == (made.id, "pending", "manual")
    assert runtime.broker.llen(f"{runtime.settings.broker_prefix}schedules") == 1
    with pytest.raises(Conflict, match=f"run {run.id} of schedule {made.id} is pending"):
        ana.schedules.run_now(made.id)
    cancelled = ana.runs.cancel(run.id)
    assert cancelled.status == "cancelled"
    assert ana.runs.cancel(run.id) == cancelled
    again = ana.schedules.run_now(made.id)
    work(runtime, again.id, RunResult("success", output="all of it"))
    ended = ana.runs.get(again.id)
    assert (ended.status, ended.output, ended.summary) == ("success", "all of it", "all of it")
    assert [one.id for one in ana.runs.list(made.id)] == [again.id, run.id]
    assert [one.id for one in ana.runs.list(made.id, 1, 1)] == [run.id]
    assert ana.schedules.get(made.id).last_run_status == "success"
    assert ana.schedules.get(made.id).next_run_at == made.next_run_at
    with pytest.raises(Conflict, match="has ended: success"):
        ana.runs.cancel(again.id)


def test_a_run_that_is_asked_for_twice_over_a_broken_connection_is_one(ana: Reverie, http: httpx2.Client) -> None:
    """Given the same request twice, as a client sends after a broken connection, then there is one run."""
    made = ana.schedules.add("x", every=600, webhook=HOOK)
    answers = [http.post(f"/v1/schedules/{made.id}/run", json={"id": "mine"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert [run.id for run in ana.runs.list(made.id)] == ["mine"]
    bare = http.post(f"/v1/schedules/{made.id}/run")
    assert bare.status_code == 409


def test_the_agents_workers_report_how_a_run_ended(ana: Reverie, runtime: Runtime) -> None:
    """Given a run that was handed to a task, when reported, then its end is kept as it was told first."""
    made = ana.schedules.add("x", every=600, task="agent.work", queue="agents")
    run = ana.schedules.run_now(made.id)
    work(runtime, run.id, Delegated())
    assert ana.runs.get(run.id).status == "running"
    ended = ana.runs.complete(run.id, "watered", summary="wet", turn_count=2, cost=0.5)
    assert (ended.status, ended.output, ended.summary, ended.turn_count, ended.cost) == (
        "success",
        "watered",
        "wet",
        2,
        0.5,
    )
    assert ana.runs.complete(run.id, "again") == ended
    with pytest.raises(Conflict, match="has ended: success"):
        ana.runs.complete(run.id, status="failed", error="no")
    second = ana.schedules.run_now(made.id)
    failed = ana.runs.complete(second.id, status="failed", error="no water")
    assert (failed.status, failed.error, failed.summary) == ("failed", "no water", "no water")
    assert ana.schedules.get(made.id).consecutive_failures == 1
    ours = ana.schedules.run_now(ana.schedules.add("x", every=600).id)
    with pytest.raises(Conflict, match="executed by Reverie itself"):
        ana.runs.complete(ours.id, "mine")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"status": "done"}, "status"),
        ({"turn_count": -1}, "turn_count"),
        ({"cost": -0.1}, "cost"),
        ({"cost": float("nan")}, "cost"),
        ({"output": "a\0b"}, "output"),
        ({"error": "x" * 9_000}, "error"),
        ({"summary": 5}, "summary"),
    ],
)
def test_a_report_at_fault_is_refused(ana: Reverie, http: httpx2.Client, given: dict[str, Any], field: str) -> None:
    """Given a report that cannot be kept, then client and server name the field, and the run is still open."""
    run = ana.schedules.run_now(ana.schedules.add("x", every=600, task="work", queue="q").id)
    with pytest.raises(Rejected) as caught:
        ana.runs.complete(run.id, **given)
    assert caught.value.field == field
    if given != {"cost": given.get("cost")} or given["cost"] == given["cost"]:  # JSON has no NaN
        answer = http.post(f"/v1/runs/{run.id}/complete", json=given)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert ana.runs.get(run.id).status == "pending"


def test_a_post_sent_twice_makes_one_schedule(ana: Reverie, http: httpx2.Client) -> None:
    """Given a body with an id, when sent twice, and by eight at once, then there is one; another body is a conflict."""
    body = {"id": "mine", "goal": "x", "every": 600}
    answers: list[httpx2.Response] = []

    def post() -> None:
        answers.append(httpx2.post(f"{http.base_url}/v1/schedules", json=body, headers=HEADERS))

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, answers[0].text)}
    assert ana.schedules.add("x", every=600, id="mine") == ana.schedules.get("mine")
    assert ana.schedules.count() == 1
    with pytest.raises(Conflict, match="id mine is in use for another schedule") as caught:
        ana.schedules.add("y", every=600, id="mine")
    assert caught.value.field == "id"


def test_long_and_short_forms_say_the_same(http: httpx2.Client) -> None:
    """Given bodies in the long form, then what they make is what the short one makes."""
    at = SOON.isoformat()
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"cadence": {"type": "cron", "expression": "0 9 * * *", "tz": "Europe/Lisbon"}}, {"cron": "0 9 * * *",
                                                                                       "tz": "Europe/Lisbon"}),
        ({"cadence": {"type": "once", "at": at}}, {"at": at}),
        ({"every": 600, "executor": {"type": "webhook", "url": HOOK}}, {"every": 600, "webhook": HOOK}),
        ({"at": at, "executor": {"type": "task", "task": "t", "queue": "q"}}, {"at": at, "task": "t", "queue": "q"}),
        ({"at": at, "executor": {"type": "llm"}}, {"at": at}),
    ]  # fmt: skip
    for long, short in pairs:
        made = [http.post("/v1/schedules", json={"goal": "x", **body}).json() for body in (long, short)]
        for field in ("cadence", "executor"):
            forms = [{**one[field], "anchor": None} for one in made]
            assert forms[0] == forms[1], long
        body = long if "cadence" in long or "executor" in long else short
        patched = http.patch(f"/v1/schedules/{made[1]['id']}", json=body)
        assert patched.status_code == 200, patched.text
    anchored = {"type": "interval", "seconds": 600, "anchor": "2026-01-01T00:05:00Z"}
    interval = http.post("/v1/schedules", json={"goal": "x", "cadence": anchored}).json()
    assert interval["next_run_at"][15:] == "5:00Z"


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "cron", "give exactly one of cron, at and every"),
    ({"cron": "@daily", "every": 60}, "every", "not cron and every"),
    ({"cron": "0 0 30 2 *"}, "cron", "never fires"),
    ({"cron": "*/30 * * * * *"}, "cron", "seconds and years are not supported"),
    ({"cron": "R R * * *"}, "cron", "random"),
    ({"cron": "61 * * * *"}, "cron", "must be from 0 to 59"),
    ({"cron": "@daily", "tz": "Lisbon"}, "tz", "did you mean Europe/Lisbon"),
    ({"cron": "@daily", "tz": "../../etc/passwd"}, "tz", "is not a time zone"),
    ({"at": "2020-01-01T00:00:00Z"}, "at", "which is in the past"),
    ({"at": "2999-01-01T00:00:00"}, "at", "needs a time zone"),
    ({"at": "tomorrow"}, "at", "not a valid time with its zone"),
    ({"at": "9999-12-31T23:00:00Z", "tz": "Asia/Tokyo"}, "at", "outside the years 1 to 9999"),
    ({"every": -60}, "every", "more than 0"),
    ({"every": 10**30}, "every", "every"),
    ({"every": 0}, "every", "more than 0"),
    ({"every": 59}, "every", "at least 60"),
    ({"every": 60.5}, "every", "whole number"),
    ({"every": 600, "webhook": "http://127.0.0.1/"}, "webhook", "not a public address"),
    ({"every": 600, "webhook": "http://169.254.169.254/latest"}, "webhook", "not a public address"),
    ({"every": 600, "webhook": "http://localhost:8080/"}, "webhook", "not a public address"),
    ({"every": 600, "webhook": "http://[::ffff:10.0.0.1]/"}, "webhook", "not a public address"),
    ({"every": 600, "webhook": "ftp://example.org/"}, "webhook", "http"),
    ({"every": 600, "webhook": "https://me:secret@example.org/"}, "webhook", "password"),
    ({"every": 600, "webhook": " "}, "webhook", "not blank"),
    ({"every": 600, "webhook": HOOK, "task": "t", "queue": "q"}, "webhook", "not both"),
    ({"every": 600, "task": "reverie.ingest_messages", "queue": "q"}, "task", "not your workers' own"),
    ({"every": 600, "task": "celery.chord", "queue": "q"}, "task", "not your workers' own"),
    ({"every": 600, "task": "t", "queue": "schedules"}, "queue", "is reserved"),
    ({"every": 600, "task": "t", "queue": "celery"}, "queue", "is reserved"),
    ({"every": 600, "task": "t"}, "queue", "needs the queue"),
    ({"every": 600, "queue": "q"}, "task", "needs the task"),
    ({"every": 600, "goal": " "}, "goal", "blank"),
    ({"every": 600, "goal": "x" * 17_000}, "goal", "the limit is 16,384"),
    ({"every": 600, "goal": "a\0b"}, "goal", "NUL"),
    ({"every": 600, "goal": 7}, "goal", "must be a text"),
    ({"every": 600, "timeout_seconds": 0}, "timeout_seconds", "1 to 86,400"),
    ({"every": 600, "recall_limit": 51}, "recall_limit", "0 to 50"),
    ({"every": 600, "name": ""}, "name", "not blank"),
    ({"every": 600, "user": "a\nb"}, "user", "control character"),
]


@pytest.mark.parametrize(("given", "field", "expected_error"), BAD)
def test_what_is_at_fault_is_named(
    http: httpx2.Client, ana: Reverie, runtime: Runtime, given: dict[str, Any], field: str, expected_error: str
) -> None:
    """Given a schedule at fault, then HTTP and both calls of the client name the field, nothing is stored, and no
    workspace is made."""
    answer = http.post("/v1/schedules", json={"goal": "x", **given})
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["field"]) == (422, "urn:reverie:problem:rejected", field)
    assert expected_error in problem["detail"]
    with pytest.raises(Rejected) as caught:
        ana.schedules.add(**{"goal": "x", **given})
    assert caught.value.field == field
    assert runtime.stores.names() == []
    made = ana.schedules.add("y", every=600, webhook=HOOK)
    if given:
        answer = http.patch(f"/v1/schedules/{made.id}", json=given)
        if field != "user":
            assert (answer.status_code, answer.json()["field"]) == (422, field)
            with pytest.raises(Rejected) as caught:
                ana.schedules.update(made.id, **given)
            assert caught.value.field == field
    assert ana.schedules.get(made.id) == made


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cadence": {"type": "cron", "expression": "0 0 30 2 *"}}, "cadence.expression"),
        ({"cadence": {"type": "cron", "expression": "@daily", "tz": "Lisbon"}}, "cadence.tz"),
        ({"cadence": {"type": "cron"}}, "cadence.expression"),
        ({"cadence": {"type": "once", "at": "2020-01-01T00:00:00Z"}}, "cadence.at"),
        ({"cadence": {"type": "once", "at": "2999-01-01T00:00:00"}}, "cadence.at"),
        ({"cadence": {"type": "interval", "seconds": 30}}, "cadence.seconds"),
        ({"cadence": {"type": "interval", "seconds": 1.5}}, "cadence.seconds"),
        ({"cadence": {"type": "interval", "seconds": 600, "anchor": "2026-01-01T00:00:00"}}, "cadence.anchor"),
        ({"cadence": {"type": "weekly"}}, "cadence.type"),
        ({"cadence": {"type": "cron", "expression": "@daily", "second": 5}}, "cadence.second"),
        ({"cadence": {"type": "cron", "expression": "@daily"}, "tz": "UTC"}, "cadence"),
        ({"every": 600, "executor": {"type": "webhook", "url": "http://10.0.0.1/"}}, "executor.url"),
        ({"every": 600, "executor": {"type": "task", "task": "reverie.x", "queue": "q"}}, "executor.task"),
        ({"every": 600, "executor": {"type": "task", "task": "t", "queue": "embed"}}, "executor.queue"),
        ({"every": 600, "executor": {"type": "smtp"}}, "executor.type"),
        ({"every": 600, "executor": {"type": "llm"}, "webhook": HOOK}, "executor"),
        ({"every": 600, "notification_policy": "often"}, "notification_policy"),
        ({"every": 600, "status": "paused"}, "status"),
        ({"every": 600, "id": "count"}, "id"),
    ],
)
def test_what_is_at_fault_in_the_long_form_is_named_as_it_stands_there(
    http: httpx2.Client, given: dict[str, Any], field: str
) -> None:
    """Given a body in the long form, then the field is named by its place in the body, for making and for changing."""
    answer = http.post("/v1/schedules", json={"goal": "x", **given})
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    made = http.post("/v1/schedules", json={"goal": "x", "every": 600}).json()
    answer = http.patch(f"/v1/schedules/{made['id']}", json=given)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


def test_the_51st_schedule_of_a_user_is_one_too_many(ana: Reverie, url: str) -> None:
    """Given 50 schedules, then the next is refused by name, for this user alone."""
    for _ in range(50):
        ana.schedules.add("x", every=600)
    with pytest.raises(Rejected, match="has 50 schedules, the limit") as caught:
        ana.schedules.add("x", every=600)
    assert caught.value.field == "user"
    assert ana.schedules.add("x", every=600, user="kate").user == "kate"
    with Reverie("kate", url=url) as kate:
        assert kate.schedules.add("x", every=600).agent == "kate"


def test_an_operator_allows_private_webhooks_and_limits_users(make_runtime: Callable[..., Runtime]) -> None:
    """Given the settings, then what they allow is accepted."""
    runtime = make_runtime(webhook_allow_private="127.0.0.1", schedules_per_user=1)
    with running_server(runtime) as url, Reverie("ana", url=url) as ana:
        ana.schedules.add("x", every=60, webhook="http://127.0.0.1:9/")
        with pytest.raises(Rejected, match="the limit"):
            ana.schedules.add("x", every=60)


def test_what_is_at_fault_in_a_request_is_named(http: httpx2.Client, ana: Reverie) -> None:
    """Given paths and parameters that cannot be, then problem details name them."""
    one = ana.schedules.add("x", every=600).id
    wrong = [
        ("GET", "/v1/schedules?colour=red", "colour"),
        ("GET", "/v1/schedules?limit=0", "limit"),
        ("GET", "/v1/schedules?status=gone", "status"),
        ("GET", "/v1/schedules/count?limit=5", "limit"),
        ("GET", f"/v1/schedules/{one}/next?count=101", "count"),
        ("GET", f"/v1/schedules/{one}/next?count=five", "count"),
        ("GET", f"/v1/schedules/{one}/runs?limit=1001", "limit"),
        ("GET", "/v1/schedules/%20", "id"),
        ("GET", "/v1/runs/%0A", "run"),
        ("PATCH", f"/v1/schedules/{one}", ""),
    ]
    for method, path, field in wrong:
        answer = http.request(method, path, json={} if method == "PATCH" else None)
        assert (answer.status_code, answer.json().get("field", "")) == (422, field), path
    for method, path, field in (
        ("GET", "/v1/schedules/nothing", "id"),
        ("GET", "/v1/schedules/nothing/next", "id"),
        ("GET", "/v1/schedules/nothing/runs", "id"),
        ("POST", "/v1/schedules/nothing/run", "id"),
        ("POST", "/v1/schedules/nothing/pause", "id"),
        ("POST", "/v1/schedules/nothing/resume", "id"),
        ("GET", "/v1/runs/nothing", "run"),
        ("POST", "/v1/runs/nothing/cancel", "run"),
        ("POST", "/v1/runs/nothing/complete", "run"),
    ):
        for workspace in ("default", "never-made"):
            answer = http.request(method, path, headers={"X-Reverie-Workspace": workspace})
            assert (answer.status_code, answer.json()["field"]) == (404, field), path


def test_a_workspace_that_does_not_exist_reads_as_empty(url: str, runtime: Runtime) -> None:
    """Given a new workspace, then there are no schedules, and asking for some makes none."""
    with Reverie("ana", url=url, workspace="new") as ana:
        assert (list(ana.schedules.list()), ana.schedules.list().total, ana.schedules.count()) == ([], 0, 0)
        assert not ana.schedules.delete("nothing")
        assert runtime.stores.names() == []
        ana.schedules.add("x", every=600)
        assert runtime.stores.names() == ["new"]


def test_schedules_are_an_agents_and_a_workspaces_own(ana: Reverie, url: str) -> None:
    """Given a schedule of ana's, then no other agent and no other workspace sees or changes it or its runs."""
    one = ana.schedules.add("x", every=600, id="a/b ..?").id
    run = ana.schedules.run_now(one)
    assert ana.schedules.get("a/b ..?").id == one
    for others in (Reverie("kate", url=url), Reverie("ana", url=url, workspace="other")):
        with others as other:
            assert list(other.schedules.list()) == []
            assert not other.schedules.delete(one)
            calls: list[Callable[[], Any]] = [
                lambda other=other: other.schedules.get(one),
                lambda other=other: other.schedules.update(one, goal="mine"),
                lambda other=other: other.schedules.pause(one),
                lambda other=other: other.schedules.run_now(one),
                lambda other=other: other.runs.list(one),
                lambda other=other: other.runs.get(run.id),
                lambda other=other: other.runs.cancel(run.id),
                lambda other=other: other.runs.complete(run.id),
            ]
            for call in calls:
                with pytest.raises(NotFound):
                    call()
    assert ana.runs.get(run.id).status == "pending"


def test_the_client_refuses_what_it_can_before_it_asks(url: str) -> None:
    """Given arguments at fault, then they are named without a server."""
    ana = Reverie("ana", url="http://127.0.0.1:1")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: ana.schedules.add("x", every=True), "every"),
        (lambda: ana.schedules.add("x", every=600, notify="often"), "notify"),  # type: ignore[arg-type]
        (lambda: ana.schedules.update("i", notify="often"), "notify"),  # type: ignore[arg-type]
        (lambda: ana.schedules.update("i", tz="UTC"), "tz"),
        (lambda: ana.schedules.update("i", webhook=HOOK, llm=True), "llm"),
        (lambda: ana.schedules.update("i"), ""),
        (lambda: ana.schedules.get(" "), "id"),
        (lambda: ana.runs.get(""), "run_id"),
        (lambda: ana.schedules.add("x", at=datetime(2999, 1, 1)), "at"),
        (lambda: ana.schedules.add("x", every=600, timeout_seconds="5"), "timeout_seconds"),  # type: ignore[arg-type]
    ]
    for call, field in wrong:
        with pytest.raises(Rejected) as caught:
            call()
        assert caught.value.field == field
    ana.close()


def test_without_a_broker_schedules_are_made_and_runs_wait(
    make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a broker that does not answer, then schedules are made all the same, and a run by hand waits for the
    sweep. For each notification the broker is tried once; Celery would try it for six seconds."""
    tried: list[object] = []
    connect = socket.socket.connect

    def counted(self: socket.socket, address: Any) -> None:
        if address == ("127.0.0.1", 1):
            tried.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", counted)
    runtime = make_runtime(broker="redis://127.0.0.1:1/0")
    with running_server(runtime) as url, Reverie("ana", url=url) as ana:
        run = ana.schedules.run_now(ana.schedules.add("x", every=600, webhook=HOOK).id)
        assert run.status == "pending"
    notified = 2  # of the goal that is to be embedded, and of the run
    answers = 2 * 2  # of each of the two calls it is looked up whether it was answered before, and its answer is kept
    assert len(tried) == notified + answers


def test_the_public_functions_of_cadences() -> None:
    """Given the names that `reverie` exports, then cadences are read, checked, computed and shown."""
    cadence = parse_cadence(cron="0 9 * * 1-5", tz="Europe/Lisbon")
    now = datetime(2027, 3, 27, tzinfo=UTC)
    validate_cadence(cadence, now=now)
    first = next_run_for_cadence(cadence, now)
    assert first is not None
    assert format_in_timezone(first, cadence) == "Mon 2027-03-29 09:00 WEST (Europe/Lisbon)"


def test_the_asyncio_client_has_the_same_calls(url: str, runtime: Runtime) -> None:
    """Given an AsyncReverie, then every call about schedules can be awaited, and answers and raises the same."""

    async def everything() -> None:
        async with AsyncReverie("ana", url=url) as ana:
            made: Schedule = await ana.schedules.add("x", every=600, task="work", queue="q")
            assert await ana.schedules.get(made.id) == made
            assert list(await ana.schedules.list(cadence="interval")) == [made]
            assert await ana.schedules.count(text="x") == 1
            assert (await ana.schedules.update(made.id, goal="y")).goal == "y"
            assert (await ana.schedules.pause(made.id)).status == "paused"
            assert (await ana.schedules.resume(made.id)).status == "active"
            assert len((await ana.schedules.next_runs(made.id, count=3)).at) == 3
            run = await ana.schedules.run_now(made.id)
            assert (await ana.runs.get(run.id)).id == run.id
            assert (await ana.runs.complete(run.id, "done")).output == "done"
            second = await ana.schedules.run_now(made.id)
            assert (await ana.runs.cancel(second.id)).status == "cancelled"
            assert [one.id for one in await ana.runs.list(made.id)] == [second.id, run.id]
            assert await ana.schedules.delete(made.id)
            with pytest.raises(NotFound):
                await ana.schedules.get(made.id)
            with pytest.raises(Rejected, match="never fires"):
                await ana.schedules.add("x", cron="0 0 30 2 *")

    asyncio.run(everything())


def test_the_document_describes_schedules(http: httpx2.Client) -> None:
    """Given the OpenAPI document, then it has every route, and cadences and executors as unions told apart by type."""
    document = http.get("/openapi.json").json()
    paths = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert paths >= {
        ("/v1/schedules", "get"),
        ("/v1/schedules", "post"),
        ("/v1/schedules/count", "get"),
        ("/v1/schedules/{id}", "get"),
        ("/v1/schedules/{id}", "patch"),
        ("/v1/schedules/{id}", "delete"),
        ("/v1/schedules/{id}/pause", "post"),
        ("/v1/schedules/{id}/resume", "post"),
        ("/v1/schedules/{schedule}/run", "post"),
        ("/v1/schedules/{id}/runs", "get"),
        ("/v1/schedules/{id}/next", "get"),
        ("/v1/runs/{run}", "get"),
        ("/v1/runs/{run}/complete", "post"),
        ("/v1/runs/{run}/cancel", "post"),
    }
    schemas = document["components"]["schemas"]
    cadence = schemas["Schedule"]["properties"]["cadence"]
    assert cadence["discriminator"]["propertyName"] == "type"
    assert set(cadence["discriminator"]["mapping"]) == {"cron", "once", "interval"}
    executor = schemas["Schedule"]["properties"]["executor"]
    assert set(executor["discriminator"]["mapping"]) == {"webhook", "task", "llm"}
    for reference in (*cadence["discriminator"]["mapping"].values(), *executor["discriminator"]["mapping"].values()):
        assert reference.rsplit("/", 1)[-1] in schemas
    assert schemas["AddSchedule"]["required"] == ["goal"]
    assert {"cadence", "cron", "at", "every", "tz"} <= set(schemas["AddSchedule"]["properties"])
    assert "required" not in schemas["UpdateSchedule"] or schemas["UpdateSchedule"]["required"] == []
