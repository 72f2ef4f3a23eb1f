"""Reminders and notifications over HTTP, by both clients, and on the command line beside a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from reverie import AsyncReverie, ClaimedReminder, Reminder, Reverie
from reverie.errors import Conflict, NotFound, Rejected
from reverie.scheduling.calls import Remind
from support.command_line import CommandLine
from support.http import running_server
from support.telling import add_notification, add_run, was_told
from worker.runtime import Runtime

HEADERS = {"X-Reverie-Agent": "ana"}


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    with running_server(runtime) as address:
        yield address


@pytest.fixture
def ana(url: str) -> Iterator[Reverie]:
    with Reverie("ana", url=url) as client:
        yield client


def call(url: str, method: str, path: str, **more: Any) -> httpx2.Response:
    return httpx2.request(method, f"{url}{path}", headers=HEADERS, trust_env=False, **more)


def test_a_reminder_from_making_to_delivering(ana: Reverie) -> None:
    """Given a client, when a reminder is made, found, claimed and delivered, then each call says so."""
    made = ana.reminders.add("s", "kate", "water the plants", in_=0, channel="garden")
    later = ana.reminders.add("s", "bob", "feed the cat", in_=timedelta(hours=2))
    assert (made.status, made.agent, made.channel) == ("due", "ana", "garden")
    assert later.due_at - later.created_at == timedelta(hours=2)
    assert ana.reminders.get(made.id) == made
    page = ana.reminders.list()
    assert ([one.id for one in page.reminders], page.total) == ([made.id, later.id], 2)
    assert [one.id for one in ana.reminders.list(status="waiting", recipient="bob", session="s").reminders] == [
        later.id
    ]
    (claimed,) = ana.reminders.claim(lease_seconds=30)
    assert isinstance(claimed, ClaimedReminder)
    assert (claimed.reminder.id, claimed.reminder.status) == (made.id, "claimed")
    assert ana.reminders.claim() == []
    done = ana.reminders.confirm(claimed)
    assert (done.status, ana.reminders.confirm(made.id, claimed.token)) == ("delivered", done)
    assert (ana.reminders.cancel(later.id), ana.reminders.cancel(later.id)) == (True, False)


def test_the_command_line_asks_the_server(
    url: str, ana: Reverie, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a server, when a reminder is added, claimed, confirmed and cancelled, then the server has each change."""
    monkeypatch.setenv("REVERIE_URL", url)
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana")
    added = reverie("reminders", "add", "s", "kate", "water the plants", "--in", "0s", "--channel", "garden")
    assert (added.code, added.err) == (0, "")
    (made,) = ana.reminders.list().reminders
    assert made.id in added.out
    assert (made.channel, made.status) == ("garden", "due")
    assert made.id in reverie("reminders", "list", "--status", "due").out
    assert (
        reverie("reminders", "list", "--status", "waiting").out
        == "Agent ana has no such reminders in workspace default.\n"
    )
    (claimed,) = reverie("reminders", "claim", "--lease", "2m", "--json").json
    assert reverie("reminders", "delivered", made.id, claimed["token"]).out == "Confirmed.\n"
    assert ana.reminders.get(made.id).status == "delivered"
    assert reverie("reminders", "show", made.id, "--json").json["status"] == "delivered"
    assert reverie("reminders", "cancel", made.id).out == "Cancelled.\n"
    again = reverie("reminders", "cancel", made.id)
    assert (again.code, again.err) == (1, f"reverie: agent ana has no reminder {made.id!r}\n")


def test_the_same_calls_can_be_awaited(url: str, runtime: Runtime) -> None:
    """Given the client for asyncio, then it has each call of the other."""

    async def talk() -> None:
        async with AsyncReverie("ana", url=url) as ana:
            due = datetime(2020, 5, 1, 9, 30, tzinfo=UTC)
            made = await ana.reminders.add("s", "kate", "water the plants", due_at=due, id="mine")
            assert (made.id, made.due_at) == ("mine", due)
            assert await ana.reminders.get("mine") == made
            assert (await ana.reminders.list(limit=1)).total == 1
            (claimed,) = await ana.reminders.claim(1, recipient="kate")
            assert (await ana.reminders.confirm(claimed)).status == "delivered"
            assert await ana.reminders.cancel("mine")
            notification_id = add_notification(runtime.store("default"))
            assert [one.id for one in (await ana.notifications.list()).notifications] == [notification_id]
            assert await ana.notifications.acknowledge([notification_id]) == 1

    asyncio.run(talk())


def test_a_call_that_is_sent_twice_makes_one_reminder(ana: Reverie) -> None:
    """Given an answer that got lost, when the same reminder is sent again, then there is one, due as first said."""
    first = ana.reminders.add("s", "kate", "water the plants", in_=60, id="mine")
    assert ana.reminders.add("s", "kate", "water the plants", in_=60, id="mine") == first
    assert ana.reminders.list().total == 1
    with pytest.raises(Conflict, match="in use for another reminder"):
        ana.reminders.add("s", "kate", "something else", in_=60, id="mine")


def test_the_client_makes_the_id_and_the_server_counts_the_seconds(
    ana: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a client whose clock is wrong, then the body has an id and seconds, and the server's clock rules."""
    sent: list[Any] = []
    real = ana.connection._http.send

    def noted(call: Remind, **more: Any) -> Any:
        sent.append(call)
        return real(call, **more)

    monkeypatch.setattr(ana.connection._http, "send", noted)
    monkeypatch.setattr("reverie.clock.now_micros", lambda: 1)
    made = ana.reminders.add("s", "kate", "water the plants", in_=60)
    assert (sent[0].id, sent[0].in_, sent[0].due_at) == (made.id, 60, None)
    assert made.due_at - made.created_at == timedelta(seconds=60)


@pytest.mark.parametrize("id", ["a/b", "..", "наш сад", "claim", "a?b=c&d", "50%"])
def test_any_id_finds_its_reminder(ana: Reverie, id: str) -> None:
    """Given an id that looks like part of a URL, then every call reaches its reminder."""
    ana.reminders.add("s", "kate", "water the plants", in_=0, id=id)
    assert ana.reminders.get(id).id == id
    (claimed,) = ana.reminders.claim()
    assert ana.reminders.confirm(claimed).status == "delivered"
    assert ana.reminders.cancel(id)


def test_agents_and_workspaces_are_apart(url: str, ana: Reverie) -> None:
    """Given another agent and another workspace, then neither sees, claims nor cancels the first one's reminder."""
    made = ana.reminders.add("s", "kate", "water the plants", in_=0)
    for other in (Reverie("bob", url=url), Reverie("ana", url=url, workspace="elsewhere")):
        with other:
            assert other.reminders.list().total == 0
            assert other.reminders.claim() == []
            assert not other.reminders.cancel(made.id)
            with pytest.raises(NotFound):
                other.reminders.get(made.id)
            with pytest.raises(NotFound):
                other.reminders.confirm(made.id, "1")


def test_a_workspace_that_does_not_exist_reads_as_empty(url: str, runtime: Runtime, ana: Reverie) -> None:
    """Given no workspace, then lists are empty, nothing is due, and nobody makes one by asking."""
    assert (ana.reminders.list().total, ana.notifications.list().total) == (0, 0)
    assert ana.reminders.claim() == []
    assert not ana.reminders.cancel("none")
    assert ana.notifications.acknowledge(["none"]) == 0
    with pytest.raises(NotFound, match="agent ana has no reminder 'none'"):
        ana.reminders.get("none")
    with pytest.raises(NotFound):
        ana.reminders.confirm("none", "1")
    assert call(url, "POST", "/v1/reminders", json={"session": "s"}).status_code == 422
    assert runtime.stores.names() == []


def test_notifications_are_read_filtered_and_acknowledged(ana: Reverie, runtime: Runtime) -> None:
    """Given notifications, when one is acknowledged, then its run counts as told and it is on the whole list only."""
    store = runtime.store("default")
    add_run(store, "run")
    first, other = add_notification(store, "run"), add_notification(store, "gone", kind="alert")
    add_notification(store, agent="bob")
    page = ana.notifications.list()
    assert ([one.id for one in page.notifications], page.total) == ([first, other], 2)
    assert [one.id for one in ana.notifications.list(schedule="of run").notifications] == [first]
    assert ana.notifications.list(channel="garden").total == 0
    assert (ana.notifications.acknowledge([first]), ana.notifications.acknowledge([first])) == (1, 0)
    assert was_told(store, "run")
    assert [one.id for one in ana.notifications.list().notifications] == [other]
    (seen, _) = ana.notifications.list(everything=True).notifications
    assert seen.acknowledged_at is not None


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("GET", "/v1/reminders?status=lost", None, "status"),
        ("GET", "/v1/reminders?session=", None, "session"),
        ("GET", "/v1/reminders?limit=0", None, "limit"),
        ("GET", "/v1/reminders?when=now", None, "when"),
        ("POST", "/v1/reminders", {"session": "s", "recipient": "k", "message": "m"}, "due_at"),
        ("POST", "/v1/reminders", {"session": "s", "recipient": "k", "message": "m", "due_at": "soon"}, "due_at"),
        (
            "POST",
            "/v1/reminders",
            {"session": "s", "recipient": "k", "message": "m", "due_at": "2027-01-01T09:30:00"},
            "due_at",
        ),
        (
            "POST",
            "/v1/reminders",
            {"session": "s", "recipient": "k", "message": "m", "in_seconds": 1, "delivery": "push"},
            "delivery",
        ),
        ("POST", "/v1/reminders", {"recipient": "k", "message": "m", "in_seconds": 1}, "session"),
        ("POST", "/v1/reminders", {"session": "s", "recipient": "k", "message": "m", "in_seconds": 1, "x": 1}, "x"),
        ("POST", "/v1/reminders/claim", {"limit": 101}, "limit"),
        ("POST", "/v1/reminders/claim", {"lease_seconds": 0}, "lease_seconds"),
        ("POST", "/v1/reminders/r/delivered", {}, "token"),
        ("GET", "/v1/notifications?everything=yes", None, "everything"),
        ("POST", "/v1/notifications/acknowledge", {"ids": []}, "ids"),
        ("POST", "/v1/notifications/acknowledge", {"ids": ["x"] * 1_001}, "ids"),
    ],
)
def test_a_request_at_fault_is_told_which_field(url: str, method: str, path: str, body: Any, field: str) -> None:
    """Given a request that cannot be served, then problem details name the field."""
    answer = call(url, method, path, json=body) if body is not None else call(url, method, path)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert (problem["type"], problem["field"]) == ("urn:reverie:problem:rejected", field)


def test_what_the_client_can_know_it_says_without_asking(ana: Reverie) -> None:
    """Given arguments at fault, then the client refuses them itself."""
    for wrong in (
        lambda: ana.reminders.add("s", "kate", "m"),
        lambda: ana.reminders.add("s", "kate", "m", due_at=datetime(2027, 1, 1)),
        lambda: ana.reminders.add("s", "kate", " ", in_=1),
        lambda: ana.reminders.add("s", "kate", "m", in_=timedelta(seconds=-1)),
        lambda: ana.reminders.claim(0),
        lambda: ana.reminders.confirm("r"),
        lambda: ana.reminders.get(""),
        lambda: ana.notifications.acknowledge("abc"),
    ):
        with pytest.raises(Rejected):
            wrong()


def test_with_a_notifier_a_reminder_may_be_for_it_alone(make_runtime: Callable[..., Runtime]) -> None:
    """Given a server with a notifier, then delivery "push" is accepted, and no agent pulls it."""
    here = make_runtime(notifier_webhook_url="https://notifier.example/")
    with running_server(here) as url, Reverie("ana", url=url) as ana:
        assert ana.reminders.add("s", "kate", "m", in_=0, delivery="push").delivery == "push"
        assert ana.reminders.claim() == []


def test_a_forgotten_session_leaves_no_reminder(ana: Reverie) -> None:
    """Given reminders of two sessions, when one is forgotten, then its own are gone."""
    ana.reminders.add("s", "kate", "secret", in_=60)
    kept = ana.reminders.add("t", "kate", "stays", in_=60)
    assert ana.sessions.forget("s")
    assert [one.id for one in ana.reminders.list().reminders] == [kept.id]


def test_the_description_names_every_path_and_form(url: str) -> None:
    """Given /openapi.json, then the paths of reminders and notifications are there, each form it refers to, too."""
    described = call(url, "GET", "/openapi.json").json()
    paths = {path for path in described["paths"] if "reminders" in path or "notifications" in path}
    assert paths == {
        "/v1/reminders", "/v1/reminders/{id}", "/v1/reminders/claim", "/v1/reminders/{id}/delivered",
        "/v1/notifications", "/v1/notifications/acknowledge",
    }  # fmt: skip
    forms = set(described["components"]["schemas"])
    assert {"Reminder", "Remind", "ClaimedReminders", "NotificationPage", "Acknowledged"} <= forms


def test_names_of_the_client_are_public() -> None:
    """Given the package, then what calls return can be imported from it."""
    import reverie

    for name in ("Reminder", "ReminderPage", "ClaimedReminder", "Notification", "NotificationPage"):
        assert name in reverie.__all__
        assert getattr(reverie, name).__name__ == name
    assert Reminder is reverie.Reminder
