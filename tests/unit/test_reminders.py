"""Reminders: made once, due in their order, claimed by one, given back when a claim ends, each agent's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memory.scheduling.notifier import (
    acknowledge,
    cancel_reminder,
    check_delivery,
    claim_reminders,
    list_notifications,
    list_reminders,
    read_reminder,
    remind,
    reminder_delivered,
)
from reverie.calls import build
from reverie.clock import from_micros
from reverie.errors import Conflict, NotFound, Rejected
from reverie.scheduling.calls import (
    MAX_LEASE_SECONDS,
    AcknowledgeNotifications,
    ClaimReminders,
    ListNotifications,
    ListReminders,
    Remind,
)
from reverie.scheduling.types import ClaimedReminder, Reminder
from storage.stores import Store, Stores
from support.pipeline import Pipeline
from support.telling import BEGAN, SECOND, Clock, add_notification, add_reminder

AGENT = "ana"
MINIMUM = {"session": "s", "recipient": "kate", "message": "water the plants"}
FROM_THE_EAST, FROM_THE_WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().rule(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    stores = Stores(tmp_path)
    yield stores.workspace("ws")
    stores.close()


def claim(store: Store, clock: Clock, *, agent: str = AGENT, **given: Any) -> list[ClaimedReminder]:
    return claim_reminders(store, build(ClaimReminders, given), agent=agent, now=clock()).claimed


def ids(claimed: list[ClaimedReminder]) -> list[str]:
    return [one.reminder.id for one in claimed]


def status(store: Store, clock: Clock, id: str) -> str:
    return read_reminder(store, id, agent=AGENT, now=clock()).status


def listed(store: Store, clock: Clock, **wanted: Any) -> list[str]:
    page = list_reminders(store, ListReminders(**wanted), agent=AGENT, now=clock())
    return [one.id for one in page.reminders]


def test_a_reminder_waits_is_due_is_claimed_and_is_delivered(store: Store, clock: Clock) -> None:
    """Given a reminder, when its time comes and somebody delivers it, then each state is told."""
    add_reminder(store, "r", due=BEGAN + 60 * SECOND)
    assert (status(store, clock, "r"), claim(store, clock)) == ("waiting", [])
    clock.forward(60)
    assert status(store, clock, "r") == "due"
    (claimed,) = claim(store, clock)
    assert status(store, clock, "r") == "claimed"
    assert claimed.reminder.claim_expires_at == from_micros(clock() + 60 * SECOND)
    done = reminder_delivered(store, "r", claimed.token, agent=AGENT, now=clock())
    assert (done.status, done.delivered_at, done.attempts) == ("delivered", from_micros(clock()), 1)
    clock.forward(10**6)
    assert claim(store, clock) == []


@pytest.mark.parametrize("lease_seconds", [30, MAX_LEASE_SECONDS])
def test_a_claim_that_ends_gives_the_reminder_back(store: Store, clock: Clock, lease_seconds: int) -> None:
    """Given an agent that died with a claim, when the lease is over and not before, then another gets it."""
    add_reminder(store, "r")
    (first,) = claim(store, clock, lease_seconds=lease_seconds)
    assert (status(store, clock, "r"), claim(store, clock)) == ("claimed", [])
    clock.forward(lease_seconds - 0.1)
    assert claim(store, clock) == []
    clock.forward(0.1)
    (second,) = claim(store, clock)
    assert (second.reminder.id, second.reminder.attempts) == ("r", 2)
    assert second.token != first.token


def test_the_token_of_a_claim_that_another_has_is_refused(store: Store, clock: Clock) -> None:
    """Given two that had the same reminder, then only the one that holds it can say that it was delivered."""
    add_reminder(store, "r")
    (first,) = claim(store, clock)
    clock.forward(60)
    (second,) = claim(store, clock)
    with pytest.raises(Conflict, match="it may be delivered again"):
        reminder_delivered(store, "r", first.token, agent=AGENT, now=clock())
    assert status(store, clock, "r") == "claimed"
    assert reminder_delivered(store, "r", second.token, agent=AGENT, now=clock()).status == "delivered"
    with pytest.raises(Conflict):
        reminder_delivered(store, "r", first.token, agent=AGENT, now=clock())


def test_who_is_late_but_still_alone_has_delivered(store: Store, clock: Clock) -> None:
    """Given a lease that is over and nobody who took over, when delivery is reported, then it counts."""
    add_reminder(store, "r")
    (claimed,) = claim(store, clock)
    clock.forward(3_600)
    assert reminder_delivered(store, "r", claimed.token, agent=AGENT, now=clock()).status == "delivered"


def test_saying_twice_that_it_was_delivered_is_saying_it_once(store: Store, clock: Clock) -> None:
    """Given a report whose answer got lost, when it is sent again, then the time of the first stands."""
    add_reminder(store, "r")
    (claimed,) = claim(store, clock)
    first = reminder_delivered(store, "r", claimed.token, agent=AGENT, now=clock())
    clock.forward(5)
    assert reminder_delivered(store, "r", claimed.token, agent=AGENT, now=clock()) == first


@pytest.mark.parametrize("token", ["", "x", "-1", "1", "9" * 40, "٣"])
def test_what_is_no_token_is_refused(store: Store, clock: Clock, token: str) -> None:
    """Given a claimed reminder, then no other text than its token reports it."""
    add_reminder(store, "r")
    claim(store, clock)
    with pytest.raises(Conflict):
        reminder_delivered(store, "r", token, agent=AGENT, now=clock())


def test_sent_again_under_its_id_it_is_one_reminder(store: Store, clock: Clock) -> None:
    """Given a reminder, when it is sent again, later or delivered by then, then it stays as it was."""
    call = build(Remind, {**MINIMUM, "in_seconds": 60, "id": "r"})
    first = remind(store, call, agent=AGENT, now=clock())
    clock.forward(60)
    assert remind(store, call, agent=AGENT, now=clock()).due_at == first.due_at
    (claimed,) = claim(store, clock)
    reminder_delivered(store, "r", claimed.token, agent=AGENT, now=clock())
    assert remind(store, call, agent=AGENT, now=clock()).status == "delivered"


@pytest.mark.parametrize("other", [{"message": "feed the cat"}, {"recipient": "bob"}, {"session": "t"}])
def test_an_id_of_another_reminder_is_refused(store: Store, clock: Clock, other: dict[str, str]) -> None:
    """Given a reminder, when its id comes with something else, then that is said and nothing changes."""
    add_reminder(store, "r", message="water the plants")
    with pytest.raises(Conflict, match="in use for another reminder"):
        remind(store, build(Remind, {**MINIMUM, "in_seconds": 1, "id": "r", **other}), agent=AGENT, now=1)
    assert read_reminder(store, "r", agent=AGENT, now=clock()).message == "water the plants"


def test_agents_do_not_see_each_others_reminders(store: Store, clock: Clock) -> None:
    """Given two agents with a reminder of the same id, then each reads, claims, reports and cancels its own alone."""
    add_reminder(store, "r")
    add_reminder(store, "r", agent="bob", message="bob's own")
    add_reminder(store, "only", agent="bob")
    (claimed,) = claim(store, clock)
    assert claimed.reminder.agent == "ana"
    assert listed(store, clock) == ["r"]
    for call in (
        lambda: read_reminder(store, "only", agent=AGENT, now=clock()),
        lambda: reminder_delivered(store, "only", "1", agent=AGENT, now=clock()),
    ):
        with pytest.raises(NotFound, match="agent ana has no reminder 'only'"):
            call()
    assert not cancel_reminder(store, "only", agent=AGENT)
    (of_bob, _) = claim(store, clock, agent="bob")
    with pytest.raises(Conflict):
        reminder_delivered(store, "r", of_bob.token, agent=AGENT, now=clock())
    reminder_delivered(store, "r", claimed.token, agent=AGENT, now=clock())
    assert read_reminder(store, "r", agent="bob", now=clock()).status == "claimed"


def test_the_longest_due_are_claimed_first_and_only_of_whom_is_asked_for(store: Store, clock: Clock) -> None:
    """Given several that are due, then a claim takes so many, in the order of their times, for one recipient."""
    for number in (3, 1, 2, 4):
        add_reminder(store, f"r{number}", due=BEGAN - 100 * SECOND + number, recipient="bob" if number == 1 else "kate")
    assert ids(claim(store, clock, limit=2, recipient="kate")) == ["r2", "r3"]
    assert ids(claim(store, clock)) == ["r1", "r4"]


def test_what_is_only_to_be_pushed_is_not_pulled(store: Store, clock: Clock) -> None:
    """Given a reminder for the notifier alone, then no agent gets it."""
    add_reminder(store, "pushed", delivery="push")
    add_reminder(store, "pulled", delivery="pull")
    add_reminder(store, "either")
    assert ids(claim(store, clock)) == ["either", "pulled"]


def test_what_is_only_to_be_pushed_needs_somebody_to_push_to() -> None:
    """Given a server without a notifier, when a reminder is for it alone, then it is refused and not stranded."""
    call = build(Remind, {**MINIMUM, "in_seconds": 1, "delivery": "push"})
    check_delivery(call, notifier=True)
    with pytest.raises(Rejected, match="set notifier_webhook_url") as caught:
        check_delivery(call, notifier=False)
    assert caught.value.field == "delivery"


def test_many_that_claim_at_once_get_each_reminder_once(store: Store, clock: Clock) -> None:
    """Given forty due reminders and eight agents' processes, when all claim one by one, then no two have the same."""
    for number in range(40):
        add_reminder(store, f"r{number}")
    begin = threading.Barrier(8)

    def take() -> list[str]:
        begin.wait()
        return [one for _ in range(10) for one in ids(claim(store, clock, limit=1))]

    with ThreadPoolExecutor(8) as threads:
        taken = [one for done in [threads.submit(take) for _ in range(8)] for one in done.result()]
    assert sorted(taken) == sorted(f"r{number}" for number in range(40))


def test_asking_when_nothing_is_due_writes_nothing(tmp_path: Path, clock: Clock) -> None:
    """Given an agent that polls, when nothing is due, then the files are not touched."""
    stores = Stores(tmp_path)
    store = stores.workspace("ws")
    add_reminder(store, "r", due=BEGAN + SECOND)
    before = stores.stamp("ws")
    assert claim(store, clock) == []
    assert stores.stamp("ws") == before
    stores.close()


def test_lists_are_by_time_and_hold_what_was_asked_for(store: Store, clock: Clock) -> None:
    """Given reminders in all states, then each filter and each page holds the right ones, and the total all of them."""
    add_reminder(store, "claimed", due=BEGAN - 3)
    add_reminder(store, "done", due=BEGAN - 2)
    for one in claim(store, clock):
        if one.reminder.id == "done":
            reminder_delivered(store, "done", one.token, agent=AGENT, now=clock())
    add_reminder(store, "due", due=BEGAN, session="t")
    add_reminder(store, "later", due=BEGAN + 1, recipient="bob")
    assert listed(store, clock) == ["claimed", "done", "due", "later"]
    states = {"claimed": ["claimed"], "delivered": ["done"], "due": ["due"], "waiting": ["later"]}
    assert {state: listed(store, clock, status=state) for state in states} == states
    assert (listed(store, clock, session="t"), listed(store, clock, recipient="bob")) == (["due"], ["later"])
    page = list_reminders(store, ListReminders(limit=2, offset=1), agent=AGENT, now=clock())
    assert ([one.id for one in page.reminders], page.total) == (["done", "due"], 4)


def test_a_cancelled_reminder_is_gone(store: Store, clock: Clock) -> None:
    """Given a reminder, when it is cancelled, then it is not due, and cancelling again says that there was none."""
    add_reminder(store, "r")
    assert (cancel_reminder(store, "r", agent=AGENT), cancel_reminder(store, "r", agent=AGENT)) == (True, False)
    assert claim(store, clock) == []


def test_seconds_are_counted_from_now() -> None:
    """Given a reminder in some seconds, then it is due so long after the moment at which it was made."""
    call = build(Remind, {**MINIMUM, "in_seconds": 90.5})
    assert call.due_time(now=BEGAN) == from_micros(BEGAN + 90_500_000)
    assert call.id


@pytest.mark.parametrize(
    ("given", "field", "expected_error"),
    [
        ({}, "due_at", "give either due_at or in_seconds"),
        ({"in_seconds": 1, "due_at": datetime(2027, 1, 1, tzinfo=UTC)}, "due_at", "either"),
        ({"due_at": datetime(2027, 1, 1)}, "due_at", "needs a time zone"),
        ({"due_at": "2027-01-01"}, "due_at", "is not a valid time with its zone: write it as"),
        ({"due_at": datetime(1, 1, 1, tzinfo=FROM_THE_EAST)}, "due_at", "outside the years"),
        ({"due_at": datetime(9999, 12, 31, 23, tzinfo=FROM_THE_WEST)}, "due_at", "outside the years"),
        ({"in_seconds": -1}, "in_seconds", "must be a number that is not negative"),
        ({"in_seconds": float("nan")}, "in_seconds", "must be a finite number"),
        ({"in_seconds": float("inf")}, "in_seconds", "must be a finite number"),
        ({"in_seconds": 3e11}, "in_seconds", "after the year 9999"),
        ({"in_seconds": 1e308}, "in_seconds", "after the year 9999"),
        ({"in_seconds": "60"}, "in_seconds", "in_seconds must be a number, not a text"),
        ({"in_seconds": 1, "message": " \n"}, "message", "blank"),
        ({"in_seconds": 1, "message": "x" * 16_385}, "message", "the limit is 16,384"),
        ({"in_seconds": 1, "message": "\ud800"}, "message", "lone surrogate"),
        ({"in_seconds": 1, "message": "a\0b"}, "message", "NUL"),
        ({"in_seconds": 1, "session": ""}, "session", "not blank"),
        ({"in_seconds": 1, "recipient": "a\nb"}, "recipient", "control character"),
        ({"in_seconds": 1, "recipient": None}, "recipient", "recipient must be a text, not null"),
        ({"in_seconds": 1, "id": " "}, "id", "not blank"),
        ({"in_seconds": 1, "channel": "x" * 257}, "channel", "the limit is 256"),
        ({"in_seconds": 1, "delivery": "pigeon"}, "delivery", "auto, pull, push"),
        ({"in_seconds": 1, "when": 5}, "when", "unknown field"),
    ],
)
def test_a_reminder_at_fault_names_the_field(given: dict[str, Any], field: str, expected_error: str) -> None:
    """Given a reminder that cannot be kept, then the error names what is wrong with it."""
    with pytest.raises(Rejected, match=expected_error) as caught:
        build(Remind, {**MINIMUM, **given})
    assert caught.value.field == field


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)])
def test_the_first_and_the_last_moment_there_is_can_be_stored(store: Store, clock: Clock, moment: datetime) -> None:
    """Given a time at either end of the calendar, then it is read as it was written."""
    call = build(Remind, {**MINIMUM, "due_at": moment, "id": "r"})
    assert remind(store, call, agent=AGENT, now=clock()).due_at == moment
    assert listed(store, clock) == ["r"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"lease_seconds": 0.5}, "lease_seconds"),
        ({"lease_seconds": 3_601}, "lease_seconds"),
        ({"lease_seconds": float("nan")}, "lease_seconds"),
        ({"recipient": ""}, "recipient"),
    ],
)
def test_a_claim_at_fault_names_the_field(given: dict[str, Any], field: str) -> None:
    """Given a claim beyond its bounds, then the error names which."""
    with pytest.raises(Rejected) as caught:
        build(ClaimReminders, given)
    assert caught.value.field == field


@pytest.mark.parametrize("wrong", ["abc", [], ["x"] * 1_001, [7], [""]])
def test_ids_at_fault_are_refused(wrong: Any) -> None:
    """Given what is no list of ids, then it is refused."""
    with pytest.raises(Rejected) as caught:
        build(AcknowledgeNotifications, {"ids": wrong})
    assert caught.value.field in ("ids", "ids[0]")


def test_forgetting_a_session_takes_its_reminders_along(tmp_path: Path) -> None:
    """Given reminders of two sessions and two agents, when one session is forgotten, then only its own are gone."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("remind me", session="s")
    pipe.settle()
    for session, agent in (("s", "ana"), ("t", "ana"), ("s", "bob")):
        add_reminder(pipe.store, f"{session} of {agent}", session=session, agent=agent)
    assert pipe.forget("s")
    assert (pipe.count("reminders"), pipe.count("reminders", "session_id = 's' AND agent_id = 'ana'")) == (2, 0)
    assert pipe.forget("t"), "it has no messages, but a reminder"
    assert not pipe.forget("t")
    pipe.close()


def test_notifications_are_each_agents_own(store: Store) -> None:
    """Given a notification of another agent's, then it is neither listed nor acknowledged."""
    mine, other = add_notification(store), add_notification(store, agent="bob")
    assert [one.id for one in list_notifications(store, ListNotifications(), agent=AGENT).notifications] == [mine]
    assert acknowledge(store, [mine, other, "none"], agent=AGENT, now=BEGAN).acknowledged == 1
    assert acknowledge(store, [mine], agent=AGENT, now=BEGAN).acknowledged == 0
    assert list_notifications(store, ListNotifications(), agent=AGENT).total == 0
    assert list_notifications(store, ListNotifications(everything=True), agent=AGENT).total == 1
    assert list_notifications(store, ListNotifications(), agent="bob").total == 1


def test_a_stored_reminder_is_told_whole(store: Store, clock: Clock) -> None:
    """Given a reminder with everything, then it is read as it was written."""
    made = add_reminder(store, "r", channel="garden", delivery="pull")
    assert made == Reminder(
        id="r", agent="ana", session="s", recipient="kate", message="think of r", due_at=from_micros(BEGAN),
        status="waiting", created_at=from_micros(BEGAN - 86_400 * SECOND), channel="garden", delivery="pull",
    )  # fmt: skip
    assert read_reminder(store, "r", agent=AGENT, now=clock()).status == "due"
