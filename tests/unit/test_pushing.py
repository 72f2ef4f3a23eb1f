"""Pushing: at least once each, whatever dies when, and no more often than that while nothing does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adapters.calls import MAX_RETRY_AFTER_SECONDS
from memory.idle_stores import IdleStores
from memory.scheduling import notifier as notifier_module
from memory.scheduling.due_runs import MAX_PAUSE_SECONDS, DueLoop
from memory.scheduling.notifier import (
    LEASE_MARGIN_SECONDS,
    MAX_UNAVAILABLE_SECONDS,
    MAX_WAIT_SECONDS,
    PRUNED_AT_ONCE,
    NotPushed,
    acknowledge,
    cancel_reminder,
    claim_reminders,
    deliver_due,
    prune_delivered,
    push_due,
    push_due_at,
    reminder_delivered,
)
from reverie.scheduling.calls import ClaimReminders
from reverie.scheduling.types import Notification, Reminder
from storage.scheduling.deliveries import AllNotifications, AllReminders, Notifications, Reminders
from storage.stores import Store, Stores
from support.telling import (
    BEGAN,
    SECOND,
    Clock,
    Notifier,
    add_notification,
    add_reminder,
    add_run,
    notification_of,
    reminder_of,
    undelivered,
    was_told,
)

LEASE = 15.0 + LEASE_MARGIN_SECONDS
KINDS = ("reminder", "notification")
DAY = 86_400.0


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().rule(monkeypatch)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close()


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.workspace("ws")


def push(store: Store, notifier: Notifier, clock: Clock) -> dict[str, int]:
    return dict(+push_due(store, notifier.pushing(clock), has_time=lambda: True))


def deliver(
    stores: Stores,
    notifier: Notifier,
    clock: Clock,
    *,
    idle_stores: IdleStores | None = None,
    pause: Callable[[float], None] | None = None,
    **more: Any,
) -> dict[str, Any]:
    loop = DueLoop(
        stores=stores, idle_stores=idle_stores or IdleStores(), now=clock, clock=clock,
        monotonic=lambda: clock() / SECOND, sleep=pause or clock.forward,
    )  # fmt: skip
    return deliver_due(loop, notifier.pushing(clock), **{"budget_seconds": 60.0, **more})


def add(store: Store, kind: str) -> str:
    """Something of a kind that is due; returns its id."""
    if kind == "reminder":
        return add_reminder(store, "r").id
    add_run(store, "run")
    return add_notification(store, "run")


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def away(**more: Any) -> Callable[..., Any]:
    return raising(NotPushed("nobody answers", unavailable=True, **more))


def test_what_is_due_is_pushed_once_and_marked(store: Store, clock: Clock) -> None:
    """Given what is due and what is not, then the notifier gets what is due, once, the longest due first."""
    add_reminder(store, "second", due=BEGAN)
    add_reminder(store, "first", due=BEGAN - 1, delivery="push")
    add_reminder(store, "later", due=BEGAN + 1)
    add_reminder(store, "pulled", delivery="pull")
    notification_id = add_notification(store)
    notifier = Notifier()
    assert push(store, notifier, clock) == {"reminders": 2, "notifications": 1}
    assert sorted(notifier.ids) == sorted(["first", "second", notification_id])
    assert notifier.ids.index("first") < notifier.ids.index("second")
    assert push(store, notifier, clock) == {}
    assert reminder_of(store, "second").delivered_at == notification_of(store, notification_id).delivered_at == clock()
    assert undelivered(store) == 2


def test_what_was_pulled_or_acknowledged_is_not_pushed(store: Store, clock: Clock) -> None:
    """Given what an agent has taken meanwhile, then it is not told twice; a claim of its that ends gives it back."""
    add_reminder(store, "taken")
    add_reminder(store, "left")
    seen = add_notification(store)
    acknowledge(store, [seen], agent="ana", now=clock())
    left, taken = claim_reminders(store, ClaimReminders(lease_seconds=60), agent="ana", now=clock()).claimed
    reminder_delivered(store, taken.reminder.id, taken.token, agent="ana", now=clock())
    notifier = Notifier()
    assert push(store, notifier, clock) == {}
    assert push_due_at(store, now=clock(), clock=clock()) == BEGAN + 60 * SECOND
    clock.forward(60)
    assert (push(store, notifier, clock), notifier.ids) == ({"reminders": 1}, [left.reminder.id])


def test_what_is_cancelled_while_it_is_pushed_is_no_trouble(store: Store, clock: Clock) -> None:
    """Given a reminder that is cancelled in the very moment, then pushing it comes to nothing more."""
    add_reminder(store, "r")
    notifier = Notifier(lambda *_: cancel_reminder(store, "r", agent="ana"))
    push(store, notifier, clock)
    add_reminder(store, "r")
    refusing = Notifier(lambda *_: cancel_reminder(store, "r", agent="ana") and away()())
    push(store, refusing, clock)
    assert undelivered(store) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dies", ["before it is pushed", "after it was pushed", "after it was marked"])
def test_a_worker_that_dies_between_two_steps_strands_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str, dies: str
) -> None:
    """Given a kill between claim, push and mark, when the lease is over, then it is pushed unless it was marked."""
    one = add(store, kind)
    notifier = Notifier()
    with monkeypatch.context() as patch:
        if dies == "before it is pushed":
            patch.setattr(notifier, "does", raising(Killed()))
        elif dies == "after it was pushed":
            patch.setattr(Reminders if kind == "reminder" else Notifications, "mark_delivered", raising(Killed()))
        else:
            patch.setattr(AllReminders, "claim_next", once_then_die(AllReminders.claim_next))
            patch.setattr(AllNotifications, "claim_next", once_then_die(AllNotifications.claim_next))
        with pytest.raises(Killed):
            push(store, notifier, clock)
    pushed = list(notifier.ids)
    assert push(store, notifier, clock) == {}, "nobody takes what may still be under way"
    marked = dies == "after it was marked"
    due_at = push_due_at(store, now=clock(), clock=clock())
    assert due_at == (None if marked else clock() + round(LEASE * SECOND))
    clock.forward(LEASE)
    push(store, notifier, clock)
    assert notifier.ids == (pushed if marked else [*pushed, one])
    assert undelivered(store) == 0
    assert kind == "reminder" or was_told(store, "run")


def once_then_die(real: Callable[..., Any]) -> Callable[..., Any]:
    """The first claim that finds something goes through; what comes after it dies."""
    found: list[object] = []

    def claim(self: object, **given: Any) -> Any:
        if found:
            raise Killed
        one = real(self, **given)
        found.extend([one] if one else [])
        return one

    return claim


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_of_a_notification_is_noted_as_told(store: Store, clock: Clock, kind: str) -> None:
    """Given a run that somebody is told of, by a push or by acknowledging it, then its history says so."""
    add_run(store, "run")
    one = add_notification(store, "run")
    assert not was_told(store, "run")
    if kind == "reminder":
        acknowledge(store, [one], agent="ana", now=clock())
    else:
        push(store, Notifier(), clock)
    assert was_told(store, "run")


def test_an_alert_does_not_count_as_being_told_of_the_run(store: Store, clock: Clock) -> None:
    """Given an alert that names the run which led to it, when it is pushed, then the run itself was not told of."""
    add_run(store, "run")
    add_notification(store, "run", kind="alert")
    push(store, Notifier(), clock)
    assert not was_told(store, "run")


def test_two_pushers_at_once_push_each_once(tmp_path: Path, clock: Clock) -> None:
    """Given sixty things that are due and two processes' pushers, when both run, then each is pushed by one of them."""
    both = [Stores(tmp_path), Stores(tmp_path)]
    store = both[0].workspace("ws")
    expected = [add_reminder(store, f"r{number}").id for number in range(30)]
    expected += [add_notification(store) for _ in range(30)]
    meet = threading.Barrier(2)
    seen: set[int] = set()

    def wait_for_the_other(*_: object) -> None:
        if threading.get_ident() not in seen:  # neither is done before both have begun
            seen.add(threading.get_ident())
            meet.wait(60)

    notifier = Notifier(wait_for_the_other)
    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(push, one.workspace("ws"), notifier, clock) for one in both]
        counts = [one.result() for one in done]
    assert sorted(notifier.ids) == sorted(expected)
    assert sum(sum(one.values()) for one in counts) == 60
    assert undelivered(store) == 0
    for one in both:
        one.close()


def test_a_pusher_that_was_too_slow_marks_nothing_that_another_has(store: Store, clock: Clock) -> None:
    """Given a push that outlived its lease, when another pushes meanwhile, then what the other says stands."""
    add_reminder(store, "r")
    other = Notifier(away())

    def outlive(*_: object) -> None:
        clock.forward(LEASE)
        push(store, other, clock)

    push(store, Notifier(outlive), clock)
    found = reminder_of(store, "r")
    assert (found.delivered_at, found.attempts, found.error) == (None, 2, "nobody answers")
    clock.forward(MAX_UNAVAILABLE_SECONDS)
    assert push(store, Notifier(), clock) == {"reminders": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_an_away_notifier_is_left_alone_for_longer_and_longer(store: Store, clock: Clock, kind: str) -> None:
    """Given a notifier that does not answer, then waits double up to five minutes, and end when it is back."""
    one = add(store, kind)
    notifier = Notifier(away())
    waits = []
    for _ in range(9):
        assert push(store, notifier, clock) == {"put_back": 1, "unavailable": 1}
        at = push_due_at(store, now=clock(), clock=clock())
        assert at is not None
        waits.append((at - clock()) / SECOND)
        clock.moment = at - 1
        assert push(store, notifier, clock) == {}
        clock.moment = at
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    row = reminder_of(store, one) if kind == "reminder" else notification_of(store, one)
    assert (row.error, row.attempts) == ("nobody answers", 9)
    notifier.does = lambda *_: None
    push(store, notifier, clock)
    assert (notifier.ids, undelivered(store)) == ([one], 0)


def test_one_that_is_away_is_asked_for_one_thing_not_for_all(store: Store, clock: Clock) -> None:
    """Given many things that are due and nobody who answers, then one is tried; back again, it gets all of them."""
    for number in range(5):
        add_reminder(store, f"r{number}")
        add_notification(store)
    notifier = Notifier(away())
    assert push(store, notifier, clock) == {"put_back": 1, "unavailable": 1}
    notifier.does = lambda *_: None
    push(store, notifier, clock)
    clock.forward(5)
    push(store, notifier, clock)
    assert (len(notifier.took), len(set(notifier.took)), undelivered(store)) == (10, 10, 0)


def test_what_could_not_be_pushed_may_be_pulled_meanwhile(store: Store, clock: Clock) -> None:
    """Given a reminder that the notifier did not take, then an agent that asks gets it at once."""
    add_reminder(store, "r")
    push(store, Notifier(away()), clock)
    (claimed,) = claim_reminders(store, ClaimReminders(), agent="ana", now=clock()).claimed
    assert reminder_delivered(store, "r", claimed.token, agent="ana", now=clock()).error == ""
    clock.forward(MAX_UNAVAILABLE_SECONDS)
    assert push(store, Notifier(), clock) == {}


def test_what_is_refused_holds_up_nothing_else(store: Store, clock: Clock) -> None:
    """Given one that the notifier refuses, then the others are pushed, and it is tried again, each hour at last."""
    for number in range(3):
        add_reminder(store, f"r{number}", due=BEGAN + number)
    clock.forward(1)

    def refuse(_workspace: str, what: Reminder | Notification) -> None:
        if what.id == "r0":
            raise NotPushed("the receiver answered 400", unavailable=False)

    notifier = Notifier(refuse)
    assert push(store, notifier, clock) == {"put_back": 1, "reminders": 2}
    for _ in range(12):
        clock.forward(MAX_WAIT_SECONDS)
        assert push(store, notifier, clock) == {"put_back": 1}
    at = push_due_at(store, now=clock(), clock=clock())
    assert at == clock() + MAX_WAIT_SECONDS * SECOND
    assert reminder_of(store, "r0").error == "the receiver answered 400"
    notifier.does = lambda *_: None
    clock.forward(MAX_WAIT_SECONDS)
    push(store, notifier, clock)
    assert undelivered(store) == 0


@pytest.mark.parametrize(("asked", "waits"), [(1.0, 5), (120.0, 120), (1e9, MAX_RETRY_AFTER_SECONDS)])
def test_a_notifier_may_ask_for_a_longer_wait(store: Store, clock: Clock, asked: float, waits: float) -> None:
    """Given a Retry-After, then it is waited for so long, but not less than ever and not more than ten minutes."""
    add_reminder(store, "r")
    push(store, Notifier(away(retry_after_seconds=asked)), clock)
    assert push_due_at(store, now=clock(), clock=clock()) == clock() + waits * SECOND


@pytest.mark.parametrize("attempts", [1, 3, 9, 12])
@pytest.mark.parametrize("unavailable", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_from_before_the_clock_was_set_back_is_not_longer_for_it(
    store: Store, clock: Clock, attempts: int, unavailable: bool, kind: str
) -> None:
    """Given a pause after any number of failures, then it holds, and ends if the clock steps back by 40 minutes."""
    add(store, kind)
    fail = raising(NotPushed("no", unavailable=unavailable, retry_after_seconds=MAX_RETRY_AFTER_SECONDS))
    for _ in range(attempts):
        clock.forward(MAX_WAIT_SECONDS)
        assert push(store, Notifier(fail), clock)["put_back"] == 1
    assert push(store, Notifier(), clock) == {}
    clock.forward(-2_400)
    assert sum(push(store, Notifier(), clock).values()) == 1


def test_a_heap_of_reminders_does_not_hold_up_notifications(store: Store, clock: Clock) -> None:
    """Given more reminders than there is time for, then notifications have their turns between them."""
    for number in range(10):
        add_reminder(store, f"r{number}")
    notification_id = add_notification(store)
    notifier = Notifier()
    push_due(store, notifier.pushing(clock), has_time=lambda: len(notifier.took) < 3)
    assert notification_id in notifier.ids


# --- over all stores ---


def test_what_becomes_due_meanwhile_is_pushed_in_its_moment(stores: Stores, store: Store, clock: Clock) -> None:
    """Given reminders within the time ahead and beyond it, then the first are pushed when due, the others are left."""
    for seconds in (1.25, 3.0, 4.75, 60.0):
        add_reminder(store, f"in {seconds:g}", due=BEGAN + round(seconds * SECOND))
    pushed: dict[str, float] = {}
    notifier = Notifier(lambda _, what: pushed.update({what.id: (clock() - BEGAN) / SECOND}))
    assert deliver(stores, notifier, clock, wait_seconds=5.0) == {"reminders": 3}
    assert pushed == {"in 1.25": 1.25, "in 3": 3.0, "in 4.75": 4.75}


def test_what_is_made_while_it_waits_is_seen(stores: Stores, store: Store, clock: Clock) -> None:
    """Given a run that waits for one reminder, when a nearer one is made, then that is pushed first."""
    add_reminder(store, "later", due=BEGAN + 4 * SECOND)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        if not pauses:
            add_reminder(stores.workspace("new"), "sooner", due=BEGAN + 2 * SECOND)
        pauses.append(seconds)
        clock.forward(seconds)

    notifier = Notifier()
    deliver(stores, notifier, clock, wait_seconds=5.0, pause=pause)
    assert notifier.took == [("new", "sooner"), ("ws", "later")]
    assert max(pauses) <= MAX_PAUSE_SECONDS


def test_run_twice_everything_is_pushed_once(stores: Stores, clock: Clock) -> None:
    """Given several workspaces, when the job runs again, then there is nothing to do."""
    for name in ("a", "b", "c"):
        add_reminder(stores.workspace(name), "r")
        add_notification(stores.workspace(name))
    notifier = Notifier()
    assert deliver(stores, notifier, clock) == {"reminders": 3, "notifications": 3}
    assert deliver(stores, notifier, clock) == {}
    assert len(notifier.took) == 6


def test_a_notifier_that_is_away_ends_the_run(stores: Stores, clock: Clock) -> None:
    """Given several workspaces and nobody who answers, then one thing was tried, not one of each."""
    for name in ("a", "b", "c"):
        add_reminder(stores.workspace(name), "r")
    idle_stores = IdleStores()
    notifier = Notifier(away())
    assert deliver(stores, notifier, clock, idle_stores=idle_stores, wait_seconds=5.0) == {
        "put_back": 1,
        "unavailable": 1,
    }
    notifier.does = lambda *_: None
    clock.forward(5)
    assert deliver(stores, notifier, clock, idle_stores=idle_stores) == {"reminders": 3}


@pytest.mark.sqlite("damages a file")
def test_a_workspace_that_cannot_be_read_holds_up_no_other(stores: Stores, clock: Clock, tmp_path: Path) -> None:
    """Given a damaged file, then its workspace is named and the others' reminders are pushed."""
    add_reminder(stores.workspace("good"), "r")
    bad = tmp_path / "workspaces" / "bad"
    bad.mkdir()
    (bad / "memory.db").write_bytes(b"not a database" * 100)
    notifier = Notifier()
    done = deliver(stores, notifier, clock)
    assert (done["reminders"], list(done["unreadable"]), notifier.ids) == (1, ["bad"], ["r"])


def test_a_workspace_with_a_heap_lets_the_others_have_their_turn(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a workspace with much to push and others with little, then nobody waits for the heap to be gone."""
    monkeypatch.setattr(notifier_module, "TURN_SECONDS", 0.0)
    for number in range(20):
        add_reminder(stores.workspace("heap"), f"r{number}")
    for name in ("a", "b"):
        add_reminder(stores.workspace(name), "r")

    notifier = Notifier()
    monkeypatch.setattr(notifier_module, "push_due", one_a_turn)
    deliver(stores, notifier, clock)
    assert {name for name, _ in notifier.took[:4]} == {"heap", "a", "b"}
    assert len(notifier.took) == 22


def one_a_turn(store: Store, pushing: Any, *, has_time: Callable[[], bool]) -> Any:
    assert not has_time(), "the turn is over at once"
    left = iter([True, False])
    return push_due(store, pushing, has_time=lambda: next(left, False))


def test_a_run_ends_when_its_time_is_up(stores: Stores, store: Store, clock: Clock) -> None:
    """Given no time at all, then nothing is begun, and the next run does it."""
    add_reminder(store, "r")
    notifier = Notifier()
    assert deliver(stores, notifier, clock, budget_seconds=0.0) == {}
    assert deliver(stores, notifier, clock) == {"reminders": 1}


def test_a_workspace_in_which_nothing_is_due_is_not_opened(
    stores: Stores, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a reminder in an hour, then a workspace is opened once, then left alone until its time."""
    add_reminder(store, "r", due=BEGAN + 3_600 * SECOND)
    idle_stores, notifier = IdleStores(), Notifier()
    deliver(stores, notifier, clock, idle_stores=idle_stores)
    with monkeypatch.context() as patch:
        patch.setattr(stores, "workspace", raising(AssertionError("opened")))
        for _ in range(3):
            clock.forward(600)
            assert deliver(stores, notifier, clock, idle_stores=idle_stores) == {}
    clock.forward(1_800)
    assert deliver(stores, notifier, clock, idle_stores=idle_stores) == {"reminders": 1}


def prune(stores: Stores, now: int, idle_stores: IdleStores | None = None) -> dict[str, Any]:
    return prune_delivered(stores, idle_stores=idle_stores or IdleStores(), now=now, keep_seconds=DAY)


def test_what_was_told_long_ago_is_forgotten_and_what_was_not_told_is_kept(
    stores: Stores, store: Store, clock: Clock
) -> None:
    """Given delivered and undelivered reminders and old notifications, when a day is over, then those go that may."""
    add_reminder(store, "delivered")
    push(store, Notifier(), clock)
    for name, delivery in (("never pulled", "pull"), ("never pushed", "push")):
        add_reminder(store, name, delivery=delivery)
    add_notification(store)
    fresh = add_notification(store, at=BEGAN + SECOND)
    idle_stores = IdleStores()
    assert prune(stores, BEGAN + round(DAY) * SECOND, idle_stores) == {}
    clock.forward(DAY)
    assert prune(stores, clock() + 1, idle_stores) == {"pruned": 2}
    assert prune(stores, clock() + 1, idle_stores) == {}
    assert undelivered(store) == 3
    assert notification_of(store, fresh)


def test_much_is_forgotten_in_several_runs(stores: Stores, store: Store) -> None:
    """Given more than is removed at once, then one run after another removes it, and none holds the store for long."""
    for _ in range(3):
        add_notification(store)
    with store.writing() as tx:
        tx.connection.exec_driver_sql(
            "INSERT INTO notifications (id, agent_id, user_id, kind, schedule_id, title, body, created_at)"
            " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            f" SELECT 'n' || i, 'ana', 'ana', 'run', 's', 't', 'b', {BEGAN} FROM n",
            (PRUNED_AT_ONCE,),
        )
    late = BEGAN + round(2 * DAY) * SECOND
    assert [prune(stores, late) for _ in range(3)] == [{"pruned": PRUNED_AT_ONCE}, {"pruned": 3}, {}]
