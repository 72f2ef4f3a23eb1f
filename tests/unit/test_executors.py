"""Who executes a run: every answer of a receiver and of the agents' broker, and what becomes of the run by it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from adapters.webhooks.sender import WebhookAnswer, WebhookFailed, WebhookRefused
from memory.scheduling.executing import AttemptLimits, Delegated, RetryAfter, result_of
from memory.scheduling.rules import RunResult
from reverie.clock import from_micros, rfc3339, to_micros
from reverie.errors import AgentQueueFull, Unavailable
from reverie.scheduling.run_signing import SignedRun, check_run
from reverie.scheduling.types import LlmExecutor
from storage.scheduling.records import RunRecord
from support.carrying_out import CarryingOut
from support.scheduled import HOOK, WORKERS
from support.scripted import ScriptedWebhookSender
from support.sending import new_secret

JSON = "application/json"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., CarryingOut]]:
    """Makes workspaces in which schedules are carried out."""
    made: list[CarryingOut] = []

    def build(**settings: Any) -> CarryingOut:
        made.append(CarryingOut(tmp_path / f"data{len(made)}", **settings))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def here(make: Callable[..., CarryingOut]) -> CarryingOut:
    """One with the default settings."""
    return make()


def fired(here: CarryingOut, *answers: Any, **fields: Any) -> RunRecord:
    """The run of a webhook to which these are the answers."""
    here.answer_webhooks(*answers)
    return here.fire(here.time.hourly(**fields))


def answered(body: bytes = b"", kind: str | None = JSON, status: int = 200, **more: Any) -> WebhookAnswer:
    return WebhookAnswer(status, kind, body, **more)


# --- what a receiver is sent ---


def test_a_receiver_is_told_of_the_run(here: CarryingOut) -> None:
    """Given a schedule with all there is to it, then the body says so, under the run's id and with a true time."""
    sender = here.answer_webhooks(answered())
    here.pipeline.say("We water the ferns on Sundays", session="plants")
    here.pipeline.settle()
    schedule = here.time.hourly(
        goal="water the ferns", name="Ferns", user="kate", session="plants", channel="mail", timeout_seconds=90
    )
    began = here.here.now()
    run = here.fire(schedule)
    (posted,) = sender.posted
    assert (posted.url, posted.message_id, posted.timeout_seconds) == (HOOK.url, run.id, 15.0)
    # What is signed goes by the clock on the wall, not by the time that schedules go by.
    assert began <= to_micros(posted.now) <= here.here.now()
    assert posted.body["type"] == "schedule.run"
    data = posted.body["data"]
    assert data == {
        "schedule_id": schedule,
        "run_id": run.id,
        "goal": "water the ferns",
        "context": data["context"],
        "results": data["results"],
        "degraded": data["degraded"],
        "due_at": from_micros(run.due_at).isoformat().replace("+00:00", "Z"),
        "coalesced": 0,
        "trigger": "schedule",
        "attempt": 1,
        "name": "Ferns",
        "agent": "ana",
        "user": "kate",
        "workspace": "ws",
        "session": "plants",
        "channel": "mail",
    }
    assert "We water the ferns on Sundays" in data["context"]
    assert [result["text"] for result in data["results"]] == ["We water the ferns on Sundays"]


def verifying(here: CarryingOut, sender: ScriptedWebhookSender, secrets: list[str]) -> list[str]:
    """Which of these secrets verify the last message."""
    signer = sender.posted[-1].signer
    assert signer is not None
    headers = signer.headers("m1", b"{}", datetime.now(UTC))
    found = []
    for secret in secrets:
        with contextlib.suppress(WebhookVerificationError):
            Webhook(secret).verify("{}", headers)
            found.append(secret)
    return found


def test_a_message_is_signed_with_the_secrets_of_its_agent(make: Callable[..., CarryingOut]) -> None:
    """Given a shared secret in the settings, then it signs besides the agent's own, and no other agent's does."""
    shared = new_secret()
    here = make(webhook_secret=shared)
    sender = here.answer_webhooks(answered())
    here.fire(here.time.hourly())
    ana, bob = (here.here.schedules.agent_secrets("ws").secrets(name, datetime.now(UTC))[0] for name in ("ana", "bob"))
    assert verifying(here, sender, [ana, bob, shared]) == [ana, shared]


def test_a_new_installation_has_no_shared_secret(here: CarryingOut) -> None:
    """Given no setting, then the agent's own secret alone signs."""
    sender = here.answer_webhooks(answered())
    here.fire(here.time.hourly())
    ana = here.here.schedules.agent_secrets("ws").secrets("ana", datetime.now(UTC))
    assert verifying(here, sender, [*ana, *here.here.schedules.secrets]) == ana


def test_a_run_sent_again_has_the_same_id(here: CarryingOut) -> None:
    """Given a receiver that is away at first, then it can tell that the second message is the first one again."""
    sender = here.answer_webhooks(answered(status=503), answered())
    run = here.fire(here.time.hourly())
    here.again(run, after_seconds=2)
    assert [posted.message_id for posted in sender.posted] == [run.id, run.id]


def test_an_attempt_may_take_no_longer_than_its_run(here: CarryingOut) -> None:
    """Given a run with less time than a receiver is given, then the receiver is given what is left."""
    sender = here.answer_webhooks(answered())
    here.fire(here.time.hourly(timeout_seconds=4))
    assert sender.posted[0].timeout_seconds == 4.0


def test_how_long_an_attempt_may_take_depends_on_the_executor() -> None:
    """Given limits, then each kind of executor has its own."""
    limits = AttemptLimits(webhook=3.0, llm=7.0, task=10.0)
    found = [limits.seconds_for(executor) for executor in (HOOK, LlmExecutor(), WORKERS)]
    assert found == [3.0, 7.0, 10.0]


# --- what it answers: it went well ---


@pytest.mark.parametrize(
    ("body", "kind", "output"),
    [
        (b"watered", "text/plain", "watered"),
        ("gegossen: Öl".encode(), "text/plain; charset=utf-8", "gegossen: Öl"),
        (b"watered", None, "watered"),
        (b"\xff\x00", "application/octet-stream", "\ufffd\ufffd"),
        (b"<p>watered</p>", "text/html", "<p>watered</p>"),
        (b"", "text/plain", ""),
        (b"", None, ""),
        (b" \n", JSON, ""),
        (b"{}", JSON, ""),
        (b'{"output": "watered"}', "APPLICATION/JSON; charset=utf-8", "watered"),
        (b'{"output": "watered"}', "application/vnd.plants+json", "watered"),
    ],
)
def test_a_text_a_report_or_nothing_is_a_success(here: CarryingOut, body: bytes, kind: str | None, output: str) -> None:
    """Given 2xx with a text, with a report or with nothing, then the run has succeeded with that output."""
    for status in (200, 202):
        run = fired(here, answered(body, kind, status))
        assert (run.status, run.output, run.error) == ("success", output, "")


def test_a_report_is_taken_as_it_is(here: CarryingOut) -> None:
    """Given a report with everything, then the run has it all."""
    body = b'{"status": "failed", "output": "o", "summary": "s", "error": "e", "turn_count": 3, "cost": 0.5}'
    run = fired(here, answered(body))
    assert (run.status, run.output, run.summary, run.error) == ("failed", "o", "s", "e")
    assert (run.turn_count, run.cost) == (3, 0.5)


@pytest.mark.parametrize(("notify", "expected_kinds"), [(b"true", ["run success"]), (b"false", []), (b"null", [])])
def test_the_receiver_decides_under_the_policy_conditional(
    here: CarryingOut, notify: bytes, expected_kinds: list[str]
) -> None:
    """Given a report that says whether to tell, then a conditional schedule does so."""
    fired(here, answered(b'{"output": "o", "notify": ' + notify + b"}"), notification_policy="conditional")
    assert here.time.notification_kinds() == expected_kinds


# --- what it answers: nonsense ---


@pytest.mark.parametrize(
    "body",
    [
        b"watered",
        b'{"output": ',
        b'"watered"',
        b"null",
        b"[]",
        b'{"status": "running"}',
        b'{"output": 7}',
        b'{"outptu": "watered"}',
        b'{"cost": -1}',
        b'{"turn_count": -1}',
        b'{"output": "a", "output": "b"}',
        b'{"output": "a\\u0000b"}',
        b'{"output": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_json_that_is_no_report_has_failed_the_run(here: CarryingOut, body: bytes) -> None:
    """Given JSON of another form, then the run has failed, at once, and says what was wrong with it."""
    run = fired(here, answered(body))
    assert run.status == "failed"
    assert run.error.startswith("the receiver answered with JSON that is not a report of a run: ")
    assert len(run.error) < 500


@pytest.mark.parametrize("cost", [b"NaN", b"1e999"])
def test_a_cost_that_is_no_number_is_no_report(cost: bytes) -> None:
    """Given a cost that cannot be stored, then it is refused."""
    assert result_of(answered(b'{"cost": ' + cost + b"}")).status == "failed"


# --- what it answers: no ---


def test_a_redirect_is_a_failure_that_says_where_to(here: CarryingOut) -> None:
    """Given a redirect, then nobody follows it, nobody tries again, and the error says what to change."""
    run = fired(here, answered(status=302, location="http://10.0.0.1/admin"))
    assert (run.status, run.tries) == ("failed", 0)
    assert "302" in run.error
    assert "http://10.0.0.1/admin" in run.error
    assert "never followed" in run.error


@pytest.mark.parametrize("status", [400, 401, 404, 422, 304])
def test_a_refusal_is_a_failure_at_once(here: CarryingOut, status: int) -> None:
    """Given an answer that would be the same again, then the run fails with what was said, and is not sent again."""
    run = fired(here, answered(b"no such plant\n\x1b[2J", "text/plain", status))
    assert run.status == "failed"
    assert str(status) in run.error
    assert "\x1b" not in run.error
    assert here.time.schedule(run.schedule).status == "active"


def test_a_receiver_that_is_gone_disables_the_schedule(here: CarryingOut) -> None:
    """Given 410, then the schedule is disabled at once, and somebody is told."""
    run = fired(here, answered(status=410))
    schedule = here.time.schedule(run.schedule)
    assert (run.status, schedule.status, schedule.next_run_at) == ("failed", "disabled", None)
    assert here.time.notification_kinds() == ["run failed", "disabled"]


def test_what_is_not_sent_at_all_is_a_failure_at_once(here: CarryingOut) -> None:
    """Given a URL that webhooks may not go to, then the run fails with the reason, and is not tried again."""
    run = fired(here, WebhookRefused("10.0.0.1 is private: add it to webhook_allow_private"))
    assert (run.status, run.error) == ("failed", "10.0.0.1 is private: add it to webhook_allow_private")


def test_what_stays_wrong_is_a_failure_at_once(here: CarryingOut) -> None:
    """Given a certificate of another name, then there is no second attempt."""
    run = fired(here, WebhookFailed("the certificate is of another name", passing=False))
    assert (run.status, run.error) == ("failed", "the certificate is of another name")


# --- what it answers: later ---


@pytest.mark.parametrize(
    "answer",
    [
        answered(status=500),
        answered(status=503),
        answered(status=408),
        answered(status=425),
        answered(status=429),
        WebhookFailed("it did not answer within 15 s", passing=True),
    ],
)
def test_what_may_pass_is_tried_again_after_2_8_and_32_seconds(here: CarryingOut, answer: Any) -> None:
    """Given a receiver that never recovers, then four attempts are made with growing pauses, and the run has failed."""
    sender = here.answer_webhooks(answer)
    run = here.fire(here.time.hourly())
    for seconds in (2, 8, 32):
        assert (run.status, run.finished_at) == ("pending", None)
        assert run.error != ""
        assert here.waits(run, seconds=seconds - 0.001)
        run = here.again(run, after_seconds=seconds)
    assert (run.status, run.tries) == ("failed", 3)
    assert run.error.endswith("(4 attempts)")
    assert len(sender.posted) == 4
    assert here.time.schedule(run.schedule).consecutive_failures == 1


def test_a_receiver_that_recovers_has_executed_the_run(here: CarryingOut) -> None:
    """Given two failures and a success, then the run has succeeded without a trace of the failures."""
    here.answer_webhooks(answered(status=500), WebhookFailed("away", passing=True), answered(b"done", "text/plain"))
    run = here.fire(here.time.hourly())
    run = here.again(here.again(run, after_seconds=2), after_seconds=8)
    assert (run.status, run.output, run.error) == ("success", "done", "")


@pytest.mark.parametrize(
    ("attempts", "error"), [(1, "the receiver answered 500 with an empty body"), (2, "(2 attempts)")]
)
def test_how_often_is_tried_is_limited(
    here: CarryingOut, monkeypatch: pytest.MonkeyPatch, attempts: int, error: str
) -> None:
    """Given a number of attempts, then so many are made, and one alone is not counted aloud."""
    monkeypatch.setattr("memory.scheduling.executing.WEBHOOK_ATTEMPTS", attempts)
    run = fired(here, answered(status=500))
    for _ in range(attempts - 1):
        run = here.again(run, after_seconds=2)
    assert run.status == "failed"
    assert run.error.endswith(error)


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 2.0), (1.0, 2.0), (30.0, 30.0), (1e9, 600.0)])
def test_a_receiver_may_ask_for_a_longer_pause(here: CarryingOut, asked: float, waited: float) -> None:
    """Given Retry-After, then it is waited for so long, never shorter than otherwise and never for ever."""
    here.answer_webhooks(answered(status=429, retry_after_seconds=asked))
    schedule = here.time.hourly()
    (run,) = _claimed(here, schedule)
    outcome = here.outcome(schedule, HOOK, run)
    assert isinstance(outcome, RetryAfter)
    assert outcome.seconds == waited


def test_a_pause_that_outlasts_the_run_ends_it(here: CarryingOut) -> None:
    """Given a pause beyond the deadline, then the run is timed out at once, with the receiver's words."""
    run = fired(here, answered(b"busy", "text/plain", 503, retry_after_seconds=30), timeout_seconds=20)
    assert run.status == "timed_out"
    assert run.error == "no time is left to try again: the receiver answered 503: busy"


def test_a_bug_in_an_executor_is_a_failed_run(here: CarryingOut) -> None:
    """Given an exception that nobody foresaw, then the run ends with it and the schedule goes on."""
    run = fired(here, ZeroDivisionError("division by zero"))
    assert (run.status, run.error) == ("failed", "ZeroDivisionError: division by zero")
    assert here.time.schedule(run.schedule).status == "active"


# --- tasks of the agents' own workers ---


def test_a_task_is_handed_over(here: CarryingOut) -> None:
    """Given a schedule with a task, then it is sent with what its worker needs, and the run waits for the report."""
    queue = here.queue_tasks()
    schedule = here.time.hourly(executor=WORKERS, timeout_seconds=90)
    run = here.fire(schedule)
    ((task, name, fields),) = queue.sent
    assert (task, name) == (WORKERS.task, WORKERS.queue)
    assert fields == {
        "workspace": "ws",
        "schedule_id": schedule,
        "run_id": run.id,
        "goal": "water the plants",
        "headers": {
            "agent": "ana",
            "workspace": "ws",
            "due_at": rfc3339(run.due_at),
            "timeout_seconds": 90,
            "trace": run.trace,
            "user": None,
            "session": None,
            **{name: fields["headers"][name] for name in ("signed_at", "signature")},
        },
        "expires_at": from_micros(here.time.clock + 90_000_000),
    }
    key = here.here.schedules.worker_key("ws", "ana")
    signed = SignedRun(
        **{name: value for name, value in fields["headers"].items() if name != "signature"},
        task=task,
        schedule_id=schedule,
        run_id=run.id,
        goal=fields["goal"],
    )
    check_run(key, signed, fields["headers"]["signature"], agent="ana", workspace="ws", now=time.time())
    assert run.status == "running"
    assert run.deadline == here.time.clock + 90_000_000


def test_a_task_recalls_nothing(here: CarryingOut, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a task, then no context is made for it: its worker recalls what it wants."""
    here.queue_tasks()
    monkeypatch.setattr("worker.scheduling.jobs.recall_for_goal", None)
    schedule = here.time.hourly(executor=WORKERS)
    assert here.fire(schedule).status == "running"


def test_a_broker_that_is_away_is_asked_again_until_the_deadline(here: CarryingOut) -> None:
    """Given an agents' broker that takes nothing, then it is asked every 5 s however often, and the run times out."""
    queue = here.queue_tasks(Unavailable("the agents' broker took no task"))
    run = here.fire(here.time.hourly(executor=WORKERS, timeout_seconds=28))
    for _ in range(5):
        assert run.status == "pending"
        assert here.waits(run, seconds=4.999)
        run = here.again(run, after_seconds=5)
    assert (run.status, run.finished_at) == ("timed_out", here.time.now)
    assert "the agents' broker took no task" in run.error
    assert queue.sent == []


def test_a_full_queue_of_the_agents_workers_is_named_by_the_run_that_times_out(here: CarryingOut) -> None:
    """Given a queue that takes nothing more, then the run waits for room, and says at its deadline what was full."""
    queue = here.queue_tasks(AgentQueueFull("the queue agent.w.ana is full: start workers"))
    run = here.fire(here.time.hourly(executor=WORKERS, timeout_seconds=20))
    run = here.again(run, after_seconds=15)
    assert (run.status, queue.sent) == ("timed_out", [])
    assert "the queue agent.w.ana is full: start workers" in run.error


def test_a_broker_that_comes_back_gets_the_task(here: CarryingOut) -> None:
    """Given an agents' broker that was away once, then the run is handed over on the second try."""
    queue = here.queue_tasks(Unavailable("away"))
    run = here.fire(here.time.hourly(executor=WORKERS))
    queue.error = None
    assert here.again(run, after_seconds=5).status == "running"
    assert len(queue.sent) == 1


def test_an_executor_is_asked_once_for_what_it_returns(here: CarryingOut) -> None:
    """Given each kind of executor, then it comes back with what the life of a run knows."""
    here.answer_webhooks(answered(b"done", "text/plain"))
    here.queue_tasks()
    schedule = here.time.hourly(recall_limit=0)
    (run,) = _claimed(here, schedule)
    assert here.outcome(schedule, HOOK, run) == RunResult("success", output="done")
    assert here.outcome(schedule, WORKERS, run) == Delegated()
    digest = RunResult("success", output="Nothing is remembered for: water the plants", notify=False)
    assert here.outcome(schedule, LlmExecutor(), run) == digest


def _claimed(here: CarryingOut, schedule: str) -> list[RunRecord]:
    here.time.advance(3_600)
    here.time.claim()
    return here.time.open_runs(schedule)
