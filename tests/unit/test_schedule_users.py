"""Whose schedules, runs, reminders and notifications are, who sees them, and who may change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory.scheduling.notifier import (
    acknowledge,
    cancel_reminder,
    claim_reminders,
    list_notifications,
    list_reminders,
    read_reminder,
    remind,
    reminder_delivered,
)
from memory.scheduling.schedules import (
    cancel_run,
    complete_run,
    count_schedules,
    create_schedule,
    delete_schedule,
    pause_schedule,
    read_run,
    read_schedule,
    resume_schedule,
    run_history,
    run_now,
    search_schedules,
    upcoming,
    update_schedule,
)
from reverie.clock import from_micros
from reverie.errors import Conflict, NotFound, Rejected
from reverie.scheduling.cadence import Cron
from reverie.scheduling.calls import ClaimReminders, ListNotifications, ListReminders, Remind
from reverie.scheduling.types import RunReport, Schedule, ScheduleChanges, ScheduleDraft
from storage.scheduling.records import ScheduleFilter
from storage.store import viewer_of
from storage.stores import Store
from support.scheduled import GOOD, WORKERS, Scheduled

AGENT = "ana"
VIEWS: list[dict[str, str]] = [{}, {"user": "kate"}, {"user": "luis"}, {"user": "mara"}, {"session": "group"}]


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace with a session of kate, a group of kate and mara, and a session of nobody."""
    time = Scheduled(tmp_path / "data")
    with time.store.writing() as tx:
        sessions = tx.for_agent(AGENT).sessions
        sessions.ensure("open", now=time.now)
        sessions.ensure("hers", now=time.now, user="kate")
        sessions.add_users(sessions.ensure("group", now=time.now, user="kate"), ["kate", "mara"])
    yield time
    time.close()


def seen(time: Scheduled, *, user: str | None = None, session: str | None = None) -> Store:
    """The store as a call sees it that names this user or this session."""
    return time.store.seen_by(viewer_of(time.store, AGENT, user=user, session=session))


def add(time: Scheduled, schedule_id: str, *, user: str | None = None, session: str | None = None) -> Schedule:
    draft = ScheduleDraft(
        id=schedule_id, user=user, session=session, goal=f"water the {schedule_id}", cadence=Cron("0 * * * *"),
        executor=WORKERS,
    )  # fmt: skip
    store = seen(time, user=user, session=session)
    return create_schedule(store, draft, agent=AGENT, rules=time.rules, check_url=lambda _: None, now=time.now)


def add_reminder(time: Scheduled, name: str, *, session: str, user: str | None = None) -> None:
    call = Remind(session, "anybody", f"about {name}", id=name, user=user, due_at=from_micros(time.now))
    remind(seen(time, user=user, session=session), call, agent=AGENT, now=time.now)


def listed(store: Store) -> set[str]:
    page = search_schedules(store, ScheduleFilter(), agent=AGENT, limit=50, offset=0)
    assert page.total == len(page) == count_schedules(store, ScheduleFilter(), agent=AGENT)
    return {schedule.id for schedule in page}


def of_everybody(time: Scheduled) -> None:
    """Add a schedule of each: of kate by name and by session, of a group, of luis, and of nobody."""
    assert add(time, "kates", user="kate").user == "kate"
    assert add(time, "of-hers", session="hers").user == "kate"
    assert add(time, "groups", session="group").user is None
    assert add(time, "luis", user="luis").user == "luis"
    assert add(time, "nobodys").user is None
    assert add(time, "of-open", session="open").user is None


SEEN = [
    {"nobodys", "of-open"},
    {"kates", "of-hers", "groups", "nobodys", "of-open"},
    {"luis", "nobodys", "of-open"},
    {"groups", "nobodys", "of-open"},
    {"groups", "nobodys", "of-open"},
]


@pytest.mark.parametrize(("view", "expected"), list(zip(VIEWS, SEEN, strict=True)))
def test_each_sees_their_own_their_groups_and_what_is_nobodys(
    time: Scheduled, view: dict[str, str], expected: set[str]
) -> None:
    """Given schedules of all, then lists, counts, single reads, runs and notifications show the same ones to each."""
    of_everybody(time)
    store = seen(time, **view)
    time.to_hour()
    runs = {}
    for sent in time.sweep():
        with time.store.reading() as tx:
            runs[tx.for_agent(AGENT).runs.get(sent.run).schedule] = sent.run
        complete_run(time.store, sent.run, RunReport(output="done"), agent=AGENT, rules=time.rules, now=time.now)
    assert listed(store) == expected
    for name, run in runs.items():
        if name in expected:
            assert read_schedule(store, name, agent=AGENT).goal == f"water the {name}"
            assert [one.output for one in run_history(store, name, agent=AGENT, limit=9)] == ["done"]
            assert read_run(store, run, agent=AGENT).output == "done"
            assert len(upcoming(store, name, agent=AGENT, count=2, now=time.now).at) == 2
        else:
            for read in (
                lambda name=name: read_schedule(store, name, agent=AGENT),
                lambda name=name: run_history(store, name, agent=AGENT, limit=9),
                lambda run=run: read_run(store, run, agent=AGENT),
                lambda name=name: upcoming(store, name, agent=AGENT, count=2, now=time.now),
            ):
                with pytest.raises(NotFound):
                    read()
    page = list_notifications(store, ListNotifications(), agent=AGENT)
    assert {one.schedule_id for one in page.notifications} == expected
    assert page.total == len(expected)


CHANGES: dict[str, Callable[[Scheduled, Store, str], object]] = {
    "update": lambda time, store, name: update_schedule(
        store,
        name,
        ScheduleChanges(goal="poison"),
        agent=AGENT,
        rules=time.rules,
        check_url=lambda _: None,
        now=time.now,
    ),
    "pause": lambda time, store, name: pause_schedule(store, name, agent=AGENT, now=time.now),
    "resume": lambda time, store, name: resume_schedule(store, name, agent=AGENT, rules=time.rules, now=time.now),
    "run": lambda time, store, name: run_now(store, name, agent=AGENT, now=time.now),
}


@pytest.mark.parametrize("change", list(CHANGES.values()), ids=list(CHANGES))
def test_a_user_changes_what_is_theirs_or_their_groups_alone(
    time: Scheduled, change: Callable[[Scheduled, Store, str], object]
) -> None:
    """Given schedules of all, then kate changes hers and the group's; nobody's is refused, and luis' unknown."""
    of_everybody(time)
    store = seen(time, user="kate")
    for name in ("kates", "of-hers", "groups"):
        change(time, store, name)
    with pytest.raises(Rejected, match="only calls for no user change it"):
        change(time, store, "nobodys")
    with pytest.raises(NotFound):
        change(time, store, "luis")
    with pytest.raises(NotFound):
        change(time, seen(time), "kates")
    change(time, seen(time), "nobodys")
    change(time, time.store, "luis")  # without a viewer: all


def test_deleting_what_is_hidden_says_that_there_was_none(time: Scheduled) -> None:
    """Given schedules of all, when luis deletes those of kate, then there is none for him, and they stay."""
    of_everybody(time)
    luis = seen(time, user="luis")
    assert not delete_schedule(luis, "kates", agent=AGENT)
    assert not delete_schedule(luis, "groups", agent=AGENT)
    with pytest.raises(Rejected, match="only calls for no user"):
        delete_schedule(luis, "nobodys", agent=AGENT)
    assert delete_schedule(luis, "luis", agent=AGENT)
    assert delete_schedule(seen(time, session="group"), "groups", agent=AGENT)
    assert listed(time.store) == {"kates", "of-hers", "nobodys", "of-open"}


def test_a_report_is_for_a_run_of_the_user_or_of_an_agent_that_knows_it(time: Scheduled) -> None:
    """Given a run of kate, then luis cannot report or cancel it; the agent's worker can, and is shown no texts."""
    add(time, "kates", user="kate")
    time.to_hour()
    (sent,) = time.sweep()
    luis, report = seen(time, user="luis"), RunReport(output="secret")
    for _ in range(2):
        with pytest.raises(NotFound):
            complete_run(luis, sent.run, report, agent=AGENT, rules=time.rules, now=time.now)
        with pytest.raises(NotFound):
            cancel_run(luis, sent.run, agent=AGENT, rules=time.rules, now=time.now)
        ended = complete_run(seen(time), sent.run, report, agent=AGENT, rules=time.rules, now=time.now)
        assert (ended.status, ended.output, ended.summary) == ("success", "", "")
    kates = complete_run(seen(time, user="kate"), sent.run, report, agent=AGENT, rules=time.rules, now=time.now)
    assert kates.output == "secret"
    with pytest.raises(NotFound):
        complete_run(seen(time), sent.run, report, agent="bob", rules=time.rules, now=time.now)


def test_an_id_of_another_user_is_in_use_and_nothing_more_is_told(time: Scheduled) -> None:
    """Given ids of kate, when luis and nobody use them, then the conflict is the same as for an id of their own."""
    add(time, "kates", user="kate")
    add(time, "own", user="luis")
    texts = set()
    for taken, who in (("kates", {"user": "luis"}), ("kates", {}), ("own", {"user": "luis", "session": "open"})):
        draft = ScheduleDraft(id=taken, goal="something else", cadence=Cron("0 * * * *"), user=who.get("user"))
        with pytest.raises(Conflict) as caught:
            create_schedule(
                seen(time, **who), draft, agent=AGENT, rules=time.rules, check_url=lambda _: None, now=time.now
            )
        texts.add(str(caught.value).replace(taken, "ID"))
    assert len(texts) == 1
    assert add(time, "kates", user="kate").id == "kates"  # her own call, sent again
    add_reminder(time, "mine", session="hers", user="kate")
    with pytest.raises(Conflict, match="in use for another reminder"):
        add_reminder(time, "mine", session="open")


def test_a_session_of_others_is_as_if_there_were_none(time: Scheduled) -> None:
    """Given a session of kate, when luis names it for a schedule or a reminder, then there is no such session."""
    with pytest.raises(NotFound, match="'hers'"):
        add(time, "x", user="luis", session="hers")
    with pytest.raises(NotFound, match="'hers'"):
        add_reminder(time, "x", user="luis", session="hers")
    add(time, "luis", user="luis")
    with pytest.raises(NotFound, match="'group'"):
        update_schedule(
            seen(time, user="luis"), "luis", ScheduleChanges(session="group"), agent=AGENT, rules=time.rules,
            check_url=lambda _: None, now=time.now,
        )  # fmt: skip
    assert add(time, "y", user="luis", session="new").session == "new"


def test_a_session_s_first_user_gets_its_schedules_and_a_group_keeps_what_is_its_own(time: Scheduled) -> None:
    """Given a schedule of a session without a user, when kate joins and then luis, then it is kate's alone."""
    add(time, "early", session="open")
    add(time, "earlier", session="later")
    with time.store.writing() as tx:
        sessions = tx.for_agent(AGENT).sessions
        sessions.ensure("open", now=time.now, user="kate")
        sessions.add_users(sessions.ensure("later", now=time.now, user="kate"), ["kate", "luis"])
    assert {read_schedule(time.store, name, agent=AGENT).user for name in ("early", "earlier")} == {"kate"}
    assert listed(seen(time, user="luis")) == set()


def test_what_belongs_to_a_group_goes_with_its_session(time: Scheduled) -> None:
    """Given a group's schedule with a notification, when its session is forgotten or left, then nobody else gets it."""
    of_everybody(time)
    add_reminder(time, "groups", session="group")
    time.to_hour()
    for sent in time.sweep():
        complete_run(time.store, sent.run, RunReport(output="done"), agent=AGENT, rules=time.rules, now=time.now)
    for session in (None, "open", "hers"):
        with pytest.raises(Rejected, match="belongs to the users of session 'group'"):
            update_schedule(
                time.store, "groups", ScheduleChanges(session=session), agent=AGENT, rules=time.rules,
                check_url=lambda _: None, now=time.now,
            )  # fmt: skip
    with time.store.writing() as tx:
        assert tx.for_agent(AGENT).sessions.forget("group", forgotten_at=time.now)
    assert "groups" not in listed(time.store)
    assert "groups" not in {
        one.schedule_id for one in list_notifications(time.store, ListNotifications(), agent=AGENT).notifications
    }
    assert list_reminders(time.store, ListReminders(), agent=AGENT, now=time.now).total == 0


def test_a_schedule_of_nobody_becomes_that_of_its_new_session_s_user(time: Scheduled) -> None:
    """Given a schedule of nobody, when an operator gives it a session of kate, then it is hers."""
    add(time, "nobodys")
    moved = update_schedule(
        time.store, "nobodys", ScheduleChanges(session="hers"), agent=AGENT, rules=time.rules,
        check_url=lambda _: None, now=time.now,
    )  # fmt: skip
    assert moved.user == "kate"
    assert listed(seen(time)) == set()


def test_the_limit_counts_each_user_and_nobody_apart(tmp_path: Path) -> None:
    """Given one schedule of nobody and one of kate as the most there may be, then each is told of their own limit."""
    time = Scheduled(tmp_path / "data", max_per_user=1)
    add(time, "a")
    add(time, "b", user="kate")
    with pytest.raises(Rejected, match="agent ana, for no user, has 1 schedules"):
        add(time, "c")
    with pytest.raises(Rejected, match="user kate has 1 schedules"):
        add(time, "d", user="kate")
    assert add(time, "e", user=AGENT).user == AGENT  # a user who is called like the agent
    assert listed(seen(time)) == {"a"}
    time.close()


# --- reminders and notifications ---


REMINDERS = [
    ("open", set[str]()),
    ("kate", {"by-name", "of-hers", "of-group"}),
    ("luis", {"of-luis"}),
    ("mara", {"of-group"}),
]


def reminders_of_everybody(time: Scheduled) -> None:
    add_reminder(time, "by-name", session="open", user="kate")
    add_reminder(time, "of-hers", session="hers")
    add_reminder(time, "of-group", session="group")
    add_reminder(time, "of-luis", session="new", user="luis")
    add_reminder(time, "of-open", session="open")


@pytest.mark.parametrize(("user", "own"), REMINDERS)
def test_each_claims_what_is_theirs_and_sees_what_is_nobodys(time: Scheduled, user: str, own: set[str]) -> None:
    """Given reminders of all, then a user lists those of nobody as well, and claims and cancels their own alone."""
    reminders_of_everybody(time)
    viewer = None if user == "open" else user
    store = seen(time, user=viewer)
    page = list_reminders(store, ListReminders(), agent=AGENT, now=time.now)
    assert {one.id for one in page.reminders} == own | {"of-open"}
    assert page.total == len(own) + 1
    hidden = {"by-name", "of-hers", "of-group", "of-luis"} - own
    for name in hidden:
        with pytest.raises(NotFound):
            read_reminder(store, name, agent=AGENT, now=time.now)
        assert not cancel_reminder(store, name, agent=AGENT)
    claimed = claim_reminders(store, ClaimReminders(), agent=AGENT, now=time.now).claimed
    assert {one.reminder.id for one in claimed} == (own if viewer else {"of-open"})
    for one in claimed:
        assert reminder_delivered(store, one.reminder.id, one.token, agent=AGENT, now=time.now).status == "delivered"
    if viewer:
        with pytest.raises(Rejected, match="only calls for no user"):
            cancel_reminder(store, "of-open", agent=AGENT)


def test_the_token_of_a_claim_is_enough_to_confirm_it(time: Scheduled) -> None:
    """Given claims for all users, then each is confirmed by its token; without it, there is no such reminder."""
    reminders_of_everybody(time)
    claimed = claim_reminders(time.store, ClaimReminders(), agent=AGENT, now=time.now).claimed
    assert len(claimed) == 5
    hers = next(one for one in claimed if one.reminder.id == "of-hers")
    with pytest.raises(NotFound):
        reminder_delivered(seen(time), "of-hers", "1", agent=AGENT, now=time.now)
    with pytest.raises(NotFound):
        reminder_delivered(seen(time, user="luis"), "of-hers", hers.token, agent=AGENT, now=time.now)
    with pytest.raises(Conflict):
        reminder_delivered(seen(time, user="kate"), "of-hers", "1", agent=AGENT, now=time.now)
    assert reminder_delivered(seen(time), "of-hers", hers.token, agent=AGENT, now=time.now).status == "delivered"


def test_a_user_acknowledges_what_is_theirs(time: Scheduled) -> None:
    """Given notifications of kate, of luis and of nobody, when kate acknowledges all ids, then hers alone are."""
    for name, user in (("kates", "kate"), ("luis", "luis"), ("nobodys", None)):
        add(time, name, user=user)
        run = run_now(time.store, name, agent=AGENT, now=time.now)
        complete_run(time.store, run.id, RunReport(output=GOOD.output), agent=AGENT, rules=time.rules, now=time.now)
    everything = list_notifications(time.store, ListNotifications(), agent=AGENT).notifications
    assert {(one.schedule_id, one.user) for one in everything} == {
        ("kates", "kate"),
        ("luis", "luis"),
        ("nobodys", None),
    }
    ids = [one.id for one in everything]
    assert acknowledge(seen(time, user="kate"), ids, agent=AGENT, now=time.now).acknowledged == 1
    left = list_notifications(time.store, ListNotifications(), agent=AGENT).notifications
    assert {one.schedule_id for one in left} == {"luis", "nobodys"}
    assert acknowledge(seen(time), ids, agent=AGENT, now=time.now).acknowledged == 1
    assert acknowledge(time.store, ids, agent=AGENT, now=time.now).acknowledged == 1
