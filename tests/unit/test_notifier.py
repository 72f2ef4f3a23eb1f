"""The notifier's webhook: what is posted, under which id, and what becomes of each answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.sender import WebhookAnswer, WebhookFailed
from memory.scheduling.notifier import Notifier, NotPushed, message_id
from reverie.clock import from_micros
from reverie.scheduling.types import Notification, Reminder
from support.scripted import ScriptedWebhookSender
from support.telling import BEGAN, add_notification, add_reminder
from worker.runtime import Runtime
from worker.scheduling.jobs import deliver
from worker.settings import Settings

URL = "https://notifier.example/hook"
REMINDER = Reminder(
    id="plants", agent="ana", session="s", recipient="kate", message="water the plants", due_at=from_micros(BEGAN),
    status="claimed", created_at=from_micros(BEGAN - 1), channel="garden",
)  # fmt: skip
NOTIFICATION = Notification(
    id="0197", agent="ana", user="kate", kind="run", schedule_id="sch", title="It is done", body="All of it.",
    created_at=from_micros(BEGAN), run_id="run", run_status="success",
)  # fmt: skip


def notifier(*answers: Any, **more: Any) -> tuple[Notifier, ScriptedWebhookSender]:
    sender = ScriptedWebhookSender(answers or (WebhookAnswer(204),), **more)
    return Notifier(URL, sender, timeout_seconds=3.0), sender


def failure(made: Notifier, what: Reminder | Notification = REMINDER) -> NotPushed:
    with pytest.raises(NotPushed) as caught:
        made.push("ws", what)
    return caught.value


def test_a_reminder_is_posted_as_the_client_reads_it() -> None:
    """Given a reminder, then the notifier gets its type, its time, where it lies, and all of it."""
    made, sender = notifier()
    began = datetime.now(UTC)
    made.push("ws", REMINDER)
    (posted,) = sender.posted
    assert (posted.url, posted.timeout_seconds) == (URL, 3.0)
    assert {name: posted.body[name] for name in ("type", "workspace")} == {"type": "reminder.due", "workspace": "ws"}
    assert posted.body["timestamp"] == posted.body["data"]["due_at"]
    assert msgspec.convert(posted.body["data"], Reminder) == REMINDER
    assert began <= posted.now <= datetime.now(UTC), "signed now, whenever it was due"


def test_a_notification_is_posted_as_the_client_reads_it() -> None:
    """Given a notification, then the notifier gets it with its own id."""
    made, sender = notifier()
    made.push("ws", NOTIFICATION)
    (posted,) = sender.posted
    assert (posted.message_id, posted.body["type"]) == ("0197", "schedule.notification")
    assert msgspec.convert(posted.body["data"], Notification) == NOTIFICATION


def test_the_id_of_a_message_is_the_reminders_alone_and_stays() -> None:
    """Given reminders that share an id, then each has a message id of its own, the same whenever it is sent again."""
    change = msgspec.structs.replace
    others = [
        ("other", REMINDER),
        ("ws", change(REMINDER, agent="bob")),
        ("ws", change(REMINDER, id="plants 2")),
        ("ws", change(REMINDER, created_at=from_micros(BEGAN))),
    ]
    ids = {message_id(workspace, one) for workspace, one in others}
    assert len({*ids, message_id("ws", REMINDER)}) == 5
    again = change(REMINDER, attempts=3, error="nobody answers", claimed_at=from_micros(BEGAN))
    assert message_id("ws", again) == message_id("ws", REMINDER)


def test_an_id_in_any_script_can_be_pushed() -> None:
    """Given an id that no header can carry, then its reminder is pushed all the same."""
    made, sender = notifier()
    made.push("ws", msgspec.structs.replace(REMINDER, id="наш сад 🌱"))
    assert sender.posted[0].message_id.isascii()


@pytest.mark.parametrize(
    ("answer", "away"),
    [
        (WebhookAnswer(500), True),
        (WebhookAnswer(503, retry_after_seconds=7.0), True),
        (WebhookAnswer(429), True),
        (WebhookAnswer(408), True),
        (WebhookFailed("no answer", passing=True), True),
        (WebhookFailed("wrong certificate", passing=False), True),
        (WebhookAnswer(400), False),
        (WebhookAnswer(404), False),
        (WebhookAnswer(410), False),
        (WebhookAnswer(302, location="https://elsewhere.example/"), False),
    ],
)
def test_what_an_answer_says_of_the_notifier(answer: Any, away: bool) -> None:
    """Given an answer that is no success, then it is told apart who is at fault: the notifier, or the one message."""
    made, _ = notifier(answer)
    failed = failure(made)
    assert failed.unavailable is away
    assert made.is_available is not away
    assert str(failed)


def test_a_wait_that_is_asked_for_is_passed_on() -> None:
    """Given Retry-After, then whoever puts the message back is told."""
    made, _ = notifier(WebhookAnswer(503, retry_after_seconds=7.0))
    assert failure(made).retry_after_seconds == 7.0


def test_an_address_that_is_not_allowed_is_no_fault_of_the_message() -> None:
    """Given a notifier on a private address, then nothing is sent and everything is kept for later."""
    sender = ScriptedWebhookSender(allow=AllowedHosts())
    made = Notifier("http://127.0.0.1:9/hook", sender, timeout_seconds=3.0)
    assert failure(made).unavailable
    assert sender.posted == []


def test_one_that_is_away_is_not_asked_for_every_message() -> None:
    """Given a failure, when the next is pushed at once, then nothing is sent; a refusal does not count as a failure."""
    made, sender = notifier(WebhookAnswer(400), WebhookAnswer(500), WebhookAnswer(200))
    failure(made)
    failure(made)
    assert failure(made).unavailable
    assert len(sender.posted) == 2


@pytest.fixture
def make_here(tmp_path: Path) -> Iterator[Callable[..., Runtime]]:
    """Makes runtimes without a broker and with a notifier that is given, if any; they are closed at the end."""
    made: list[Runtime] = []

    def make(notifier: Notifier | None = None, **chosen: Any) -> Runtime:
        settings = Settings(data=tmp_path / "data", broker="redis://127.0.0.1:1/0", **chosen)
        made.append(Runtime(settings, schedule_parts={"notifier": notifier}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def remember_something(here: Runtime) -> None:
    add_reminder(here.store("ws"), "r", due=here.now() - 1)
    add_notification(here.store("ws"), at=here.now())


def test_without_a_notifier_nothing_is_pushed_and_no_secret_is_made(make_here: Callable[..., Runtime]) -> None:
    """Given no notifier, when the job runs, then it does nothing, and both can still be pulled."""
    here = make_here()
    remember_something(here)
    assert deliver(here, manual=False) == {}
    assert not (here.settings.data / "installation.key").exists()


def test_by_hand_all_that_is_due_is_pushed_and_nothing_is_waited_for(
    make_here: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given something due and something due soon, then by hand the first is pushed, and that is all."""
    monkeypatch.setattr("worker.scheduling.services.SCHEDULE_SECONDS", 60.0)
    made, sender = notifier()
    here = make_here(made)
    remember_something(here)
    add_reminder(here.store("ws"), "soon", due=here.now() + 50_000_000)
    assert deliver(here, manual=True) == {"reminders": 1, "notifications": 1}
    assert len(sender.posted) == 2


def test_while_the_notifier_is_left_alone_nothing_is_claimed(make_here: Callable[..., Runtime]) -> None:
    """Given a notifier that just failed, when the job runs again, then it does not even look for what is due."""
    made, sender = notifier(WebhookAnswer(500, retry_after_seconds=600.0))
    here = make_here(made)
    remember_something(here)
    first = deliver(here, manual=True)
    posted = len(sender.posted)
    assert 1 <= posted <= first["put_back"] == first["unavailable"] <= 2, "both may have been on their way"
    assert deliver(here, manual=True) == {}
    assert len(sender.posted) == posted


def test_two_runs_of_one_process_do_not_wait_for_the_same_notifier(make_here: Callable[..., Runtime]) -> None:
    """Given a run that is under way, when another begins in this process, then it leaves everything to the first."""
    found: list[Any] = []

    def meanwhile(_posted: object) -> WebhookAnswer:
        found.append(deliver(here, manual=True))
        return WebhookAnswer(200)

    here = make_here(notifier(meanwhile)[0])
    remember_something(here)
    assert deliver(here, manual=True) == {"reminders": 1, "notifications": 1}
    assert found == [{"skipped": 1}] * 2
