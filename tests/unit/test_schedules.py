"""Schedules as an agent sees them: made once, found, changed, paused and resumed, each agent's and workspace's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.scheduling import wait_until_ended
from memory.lifecycle.importing import bring_back_schedule, delete_schedule_with_records
from memory.scheduling.schedules import (
    cancel_run,
    complete_run,
    count_schedules,
    create_in_workspace,
    create_schedule,
    delete_schedule,
    pause_schedule,
    read_run,
    read_schedule,
    resume_schedule,
    run_history,
    run_now,
    schedule_filter,
    search_schedules,
    upcoming,
    update_schedule,
)
from reverie.calls import build
from reverie.clock import from_micros, to_micros
from reverie.errors import Conflict, NotFound, Rejected, WaitTimeout
from reverie.scheduling.cadence import Cadence, Cron, Interval, Once
from reverie.scheduling.calls import ListSchedules
from reverie.scheduling.types import (
    LlmExecutor,
    RunReport,
    Schedule,
    ScheduleChanges,
    ScheduleDraft,
    TaskExecutor,
    WebhookExecutor,
)
from reverie.trust.exports import ExportedRun, ExportedSchedule
from storage.scheduling.records import ScheduleFilter
from support.scheduled import BAD, HOOK, SECOND, WORKERS, Scheduled

HOURLY = Cron("0 * * * *")


def bring_back(time: Scheduled, records: Sequence[ExportedSchedule | ExportedRun]) -> None:
    """Undo a deletion."""
    bring_back_schedule(time.stores, records, rules=time.rules, deleted_at=time.now, now=time.now)


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace in which time passes when a test says so: a Monday, 08:00:30 UTC."""
    with_time = Scheduled(tmp_path / "data")
    yield with_time
    with_time.close()


def refuse(url: str) -> None:
    """As a check of URLs that lets none pass."""
    raise Rejected(f"url {url} is not allowed", field="url")


def create(time: Scheduled, draft: ScheduleDraft, *, agent: str = "ana", check_url: Any = lambda _: None) -> Schedule:
    """Make a schedule now."""
    return create_schedule(time.store, draft, agent=agent, rules=time.rules, check_url=check_url, now=time.now)


def draft(cadence: Cadence = HOURLY, *, id: str = "one", **fields: Any) -> ScheduleDraft:
    """A schedule as it is checked and sent."""
    return ScheduleDraft(**{"goal": "water the plants", **fields}, id=id, cadence=cadence)


def update(time: Scheduled, schedule_id: str, *, agent: str = "ana", **changes: Any) -> Schedule:
    """Change a schedule now."""
    return update_schedule(
        time.store,
        schedule_id,
        ScheduleChanges(**changes),
        agent=agent,
        rules=time.rules,
        check_url=lambda _: None,
        now=time.now,
    )


def pause(time: Scheduled, schedule_id: str, *, agent: str = "ana") -> Schedule:
    """Pause a schedule now."""
    return pause_schedule(time.store, schedule_id, agent=agent, now=time.now)


def resume(time: Scheduled, schedule_id: str, *, agent: str = "ana") -> Schedule:
    """Resume a schedule now."""
    return resume_schedule(time.store, schedule_id, agent=agent, rules=time.rules, now=time.now)


def filter_of(**wanted: Any) -> ScheduleFilter:
    """The filter of a call with these arguments."""
    return schedule_filter(build(ListSchedules, wanted))


def found(time: Scheduled, *, agent: str = "ana", **wanted: Any) -> list[str]:
    """The ids of the schedules that are found, the newest first."""
    page = search_schedules(time.store, filter_of(**wanted), agent=agent, limit=100, offset=0)
    assert page.total == len(page) == count_schedules(time.store, filter_of(**wanted), agent=agent)
    return [schedule.id for schedule in page]


def test_a_schedule_is_kept_as_it_was_given_with_its_next_time(time: Scheduled) -> None:
    """Given a draft in which everything is said, when it is stored, then all of it is read back, and when it fires."""
    given = draft(
        Cron("0 9 * * 1-5", "Europe/Lisbon"),
        executor=WORKERS,
        name="morning",
        user="kate",
        notification_policy="on_failure",
        channel="kitchen",
        session="s",
        timeout_seconds=60,
        recall_limit=0,
    )
    made = create(time, given)
    assert made == read_schedule(time.store, "one", agent="ana")
    for field in given.__struct_fields__:
        assert getattr(made, field) == getattr(given, field), field
    assert (made.agent, made.status, made.consecutive_failures) == ("ana", "active", 0)
    assert made.next_run_at == datetime(2027, 3, 1, 9, tzinfo=UTC)
    assert made.created_at == made.updated_at == from_micros(time.now)
    assert (made.last_run_at, made.last_run_status) == (None, None)


@pytest.mark.parametrize(
    ("cadence", "first"),
    [
        (Cron("30 8 * * *", "UTC"), timedelta(minutes=29, seconds=30)),
        (Once(datetime(2027, 3, 1, 10, tzinfo=UTC)), timedelta(hours=1, minutes=59, seconds=30)),
        (Interval(90), timedelta(seconds=90)),
        (Interval(3_600, anchor=datetime(2027, 1, 1, 0, 15, tzinfo=UTC)), timedelta(minutes=14, seconds=30)),
    ],
)
def test_each_cadence_begins_when_it_says(time: Scheduled, cadence: Cadence, first: timedelta) -> None:
    """Given a cadence, then its first time is the first after now; an interval counts from now, or from its anchor."""
    assert create(time, draft(cadence)).next_run_at == from_micros(time.now) + first


def test_an_interval_remembers_where_it_began(time: Scheduled) -> None:
    """Given an interval without an anchor, then now becomes it, so that its phase is kept however late runs are."""
    made = create(time, draft(Interval(90, "Asia/Tokyo")))
    assert made.cadence == Interval(90, "Asia/Tokyo", from_micros(time.now))


@pytest.mark.parametrize(
    ("cadence", "field", "expected_error"),
    [
        (Cron("0 0 30 2 *"), "cron", "never fires"),
        (Cron("*/30 * * * * *"), "cron", "seconds and years are not supported"),
        (Cron("0 9 * * *", "Lisbon"), "tz", "did you mean Europe/Lisbon"),
        (Once(datetime(2027, 3, 1, 8, tzinfo=UTC)), "at", "which is in the past"),
        (Once(datetime(2027, 3, 2, 8)), "at", "needs a time zone"),
        (Interval(0), "every", "more than 0"),
        (Interval(-60), "every", "more than 0"),
        (Interval(59), "every", "at least 60"),
    ],
)
def test_a_cadence_at_fault_makes_no_schedule(
    time: Scheduled, cadence: Cadence, field: str, expected_error: str
) -> None:
    """Given a cadence that cannot be, when a schedule is made of it or given it, then the field is named and nothing
    has changed."""
    with pytest.raises(Rejected, match=expected_error) as caught:
        create(time, draft(cadence))
    assert caught.value.field == field
    assert found(time) == []
    before = create(time, draft())
    with pytest.raises(Rejected, match=expected_error) as caught:
        update(time, "one", cadence=cadence)
    assert caught.value.field == field
    assert read_schedule(time.store, "one", agent="ana") == before


def test_the_shortest_interval_is_an_operators(tmp_path: Path) -> None:
    """Given a longer minimum, then a cron is held to it at its closest times, not at its next two."""
    time = Scheduled(tmp_path / "data", min_interval_seconds=3_600)
    create(time, draft(Cron("0 9,11 * * *")))
    with pytest.raises(Rejected, match="1,800 seconds apart"):
        create(time, draft(Cron("0,30 20 * * 5"), id="two"))
    time.close()


def test_a_url_that_webhooks_may_not_go_to_makes_no_schedule(time: Scheduled) -> None:
    """Given a check that refuses, then neither a new schedule nor a changed one goes there."""
    with pytest.raises(Rejected, match="not allowed") as caught:
        create(time, draft(executor=HOOK), check_url=refuse)
    assert caught.value.field == "url"
    create(time, draft(), check_url=refuse)  # a model has no URL
    with pytest.raises(Rejected, match="not allowed"):
        update_schedule(
            time.store,
            "one",
            ScheduleChanges(executor=HOOK),
            agent="ana",
            rules=time.rules,
            check_url=refuse,
            now=time.now,
        )
    assert read_schedule(time.store, "one", agent="ana").executor == LlmExecutor()


def test_a_workspace_comes_into_being_with_a_schedule_that_is_right(time: Scheduled) -> None:
    """Given a new workspace, then a schedule at fault leaves none behind, and the next one makes it."""
    more: dict[str, Any] = {"agent": "ana", "rules": time.rules, "now": time.now}
    with pytest.raises(Rejected, match="which is in the past"):
        create_in_workspace(time.stores, "new", draft(Once(from_micros(time.now))), **more, check_url=lambda _: None)
    with pytest.raises(Rejected, match="not allowed"):
        create_in_workspace(time.stores, "new", draft(executor=HOOK), **more, check_url=refuse)
    assert time.stores.names() == []
    made = create_in_workspace(time.stores, "new", draft(), **more, check_url=refuse)
    assert time.stores.names() == ["new"]
    assert create_in_workspace(time.stores, "new", draft(), **more, check_url=refuse) == made


@pytest.mark.parametrize("cadence", [HOURLY, Interval(90), Once(datetime(2027, 3, 1, 8, 1, tzinfo=UTC))])
def test_a_schedule_that_is_sent_twice_is_there_once_and_stays_as_it_is(time: Scheduled, cadence: Cadence) -> None:
    """Given a schedule, when it is sent again under its id, later and after its time, then nothing has changed."""
    made = create(time, draft(cadence))
    time.advance(7_200)
    assert create(time, draft(cadence)) == made
    assert found(time) == ["one"]


@pytest.mark.parametrize(
    "other",
    [draft(goal="something else"), draft(Cron("1 * * * *")), draft(executor=HOOK), draft(user="kate")],
)
def test_an_id_that_stands_for_another_schedule_is_a_conflict(time: Scheduled, other: ScheduleDraft) -> None:
    """Given a schedule, when its id is sent with something else, then that is said, and the first one stands."""
    made = create(time, draft())
    with pytest.raises(Conflict, match="id one is in use for another schedule") as caught:
        create(time, other)
    assert caught.value.field == "id"
    assert read_schedule(time.store, "one", agent="ana") == made


def test_a_schedule_sent_by_many_at_once_is_there_once(time: Scheduled) -> None:
    """Given eight threads that send the same one, then all get the same schedule."""
    assert found(time) == []
    made: list[Schedule] = []
    threads = [threading.Thread(target=lambda: made.append(create(time, draft(Interval(90))))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert made.count(made[0]) == 8
    assert found(time) == ["one"]


def test_the_51st_schedule_of_a_user_is_one_too_many(time: Scheduled) -> None:
    """Given 50 schedules of a user, then another is refused, also when one that had ended is to fire again; not of
    another user or agent, and not once one is deleted or completed."""
    for number in range(50):
        create(time, draft(id=f"s{number}"))
    with pytest.raises(Rejected, match="50 schedules, the limit") as caught:
        create(time, draft(id="s50"))
    assert caught.value.field == "user"
    assert create(time, draft(id="s0")).id == "s0"  # sent again
    create(time, draft(id="s50", user="kate"))
    create(time, draft(id="s50"), agent="kate")
    pause(time, "s1")  # it can be made to fire
    with pytest.raises(Rejected, match="the limit"):
        create(time, draft(id="s51"))
    assert delete_schedule(time.store, "s1", agent="ana")
    create(time, draft(Once(time.moment(60)), id="s51"))
    time.fire("s51")
    assert read_schedule(time.store, "s51", agent="ana").status == "completed"
    create(time, draft(id="s52"))
    with pytest.raises(Rejected, match="the limit"):
        update(time, "s51", cadence=HOURLY)
    assert delete_schedule(time.store, "s52", agent="ana")
    assert update(time, "s51", cadence=HOURLY).status == "active"


def test_a_failed_one_shot_is_resumed_only_where_there_is_room(tmp_path: Path) -> None:
    """Given a limit of one, and a one-shot that has failed beside another schedule, then it stays failed until that
    is deleted."""
    time = Scheduled(tmp_path / "data", max_per_user=1)
    one = time.once(60)
    for _ in range(4):
        time.fire(one, BAD)
    assert read_schedule(time.store, one, agent="ana").status == "failed"
    two = time.hourly()
    with pytest.raises(Rejected, match="the limit") as caught:
        resume(time, one)
    assert caught.value.field == "user"
    assert delete_schedule(time.store, two, agent="ana")
    resumed = resume(time, one)
    assert (resumed.status, resumed.consecutive_failures) == ("active", 0)
    assert resumed.next_run_at == from_micros(time.now)
    time.close()


def test_a_change_leaves_the_rest_and_the_next_time(time: Scheduled) -> None:
    """Given a schedule, when its words change, then its time stays; null takes a name, a channel, a session off."""
    before = create(time, draft(name="plants", channel="kitchen", session="s"))
    time.advance(60)
    after = update(time, "one", goal="feed the cat", notification_policy="never", timeout_seconds=5, recall_limit=1)
    assert (after.goal, after.notification_policy, after.timeout_seconds, after.recall_limit) == (
        "feed the cat",
        "never",
        5,
        1,
    )
    assert (after.name, after.channel, after.session) == ("plants", "kitchen", "s")
    assert (after.next_run_at, after.created_at) == (before.next_run_at, before.created_at)
    assert after.updated_at == from_micros(time.now)
    bare = update(time, "one", name=None, channel=None, session=None, executor=WORKERS)
    assert (bare.name, bare.channel, bare.session, bare.executor) == (None, None, None, WORKERS)
    assert bare.goal == "feed the cat"


def test_a_new_cadence_begins_now(time: Scheduled) -> None:
    """Given an hourly schedule, when it becomes an interval, then that counts from the change; a paused one stays
    paused and takes it up when it is resumed."""
    create(time, draft())
    time.advance(600)
    changed = update(time, "one", cadence=Interval(300))
    assert changed.next_run_at == time.moment(300)
    assert changed.cadence == Interval(300, "UTC", time.moment())
    pause(time, "one")
    paused = update(time, "one", cadence=Interval(600))
    assert (paused.status, paused.next_run_at) == ("paused", None)
    time.advance(900)
    assert resume(time, "one").next_run_at == time.moment(300)


@pytest.mark.parametrize("outcome", ["success", "failed"])
def test_what_had_ended_is_active_again_by_a_new_time(time: Scheduled, outcome: str) -> None:
    """Given a one-shot that is completed or failed, when it gets a new time, then it fires then, without failures."""
    one = time.once(60)
    for _ in range(1 if outcome == "success" else 4):
        time.fire(one, BAD if outcome == "failed" else replace(BAD, status="success"))
    assert time.schedule(one).status == ("completed" if outcome == "success" else "failed")
    again = update(time, one, cadence=Once(time.moment(3_600)))
    assert (again.status, again.consecutive_failures, again.next_run_at) == ("active", 0, time.moment(3_600))
    time.fire(one)
    assert time.schedule(one).status == "completed"


def test_a_paused_schedule_does_not_fire_and_makes_nothing_up(time: Scheduled) -> None:
    """Given a schedule that is paused over two of its times, when resumed, then it fires at the next one."""
    one = time.hourly()
    paused = pause(time, one)
    assert (paused.status, paused.next_run_at) == ("paused", None)
    time.advance(7_200)
    assert time.sweep() == []
    assert pause(time, one) == paused
    resumed = resume(time, one)
    assert (resumed.status, resumed.next_run_at) == ("active", datetime(2027, 3, 1, 11, tzinfo=UTC))
    assert resume(time, one) == resumed
    assert time.sweep() == []


def test_an_interval_that_is_resumed_keeps_its_phase(time: Scheduled) -> None:
    """Given an interval of ten minutes, when it is resumed after 25, then it fires at 30."""
    one = time.every(600)
    began = time.now
    pause(time, one)
    time.advance(1_500)
    assert resume(time, one).next_run_at == from_micros(began + 1_800 * SECOND)


def test_a_one_shot_that_is_resumed_after_its_time_fires_at_once(time: Scheduled) -> None:
    """Given a one-shot that was paused over its time, when resumed, then it is due; before its time it waits for it."""
    one = time.once(600)
    pause(time, one)
    assert resume(time, one).next_run_at == time.moment(600)
    pause(time, one)
    time.advance(3_600)
    assert resume(time, one).next_run_at == time.moment()
    assert len(time.sweep()) == 1


def test_what_has_ended_is_not_paused_and_what_succeeded_is_not_resumed(time: Scheduled) -> None:
    """Given a completed one-shot, then pausing and resuming it are conflicts that say what to do."""
    one = time.once(60)
    time.fire(one)
    with pytest.raises(Conflict, match="is completed: there is nothing to pause"):
        pause(time, one)
    with pytest.raises(Conflict, match="give it a new time instead"):
        resume(time, one)


def test_a_deleted_schedule_comes_back_as_it_was(time: Scheduled) -> None:
    """Given a paused schedule with two runs, when it is deleted and brought back twice, then nothing has changed."""
    one = time.hourly(name="plants")
    runs = [time.fire(one).id, time.fire(one, BAD).id]
    pause(time, one)
    before = read_schedule(time.store, one, agent="ana")
    history = run_history(time.store, one, agent="ana", limit=10)
    records = delete_schedule_with_records(time.store, one, agent="ana", workspace="ws")
    assert [record.id for record in records] == [one, *runs[::-1]]
    with pytest.raises(NotFound):
        read_schedule(time.store, one, agent="ana")
    for _ in range(2):
        bring_back(time, records)
    assert read_schedule(time.store, one, agent="ana") == before
    assert run_history(time.store, one, agent="ana", limit=10) == history


def test_a_schedule_deleted_during_its_only_run_fires_once_it_is_back(time: Scheduled) -> None:
    """Given a one-shot whose run is open, when it comes back without the run, then its time is that of the run."""
    one = time.once(60)
    due = read_schedule(time.store, one, agent="ana").next_run_at
    time.advance(60)
    assert len(time.claim()) == 1
    records = delete_schedule_with_records(time.store, one, agent="ana", workspace="ws")
    bring_back(time, records)
    assert read_schedule(time.store, one, agent="ana").next_run_at == due
    assert time.fire(one).status == "success"


def test_a_schedule_comes_back_only_where_there_is_room(tmp_path: Path) -> None:
    """Given a limit of one and a new schedule in its place, when a deletion is undone, then it is refused."""
    time = Scheduled(tmp_path / "data", max_per_user=1)
    records = delete_schedule_with_records(time.store, time.hourly(), agent="ana", workspace="ws")
    two = time.hourly()
    with pytest.raises(Rejected, match="the limit"):
        bring_back(time, records)
    assert delete_schedule(time.store, two, agent="ana")
    bring_back(time, records)
    bring_back(time, records)
    time.close()


def test_a_deleted_schedule_takes_its_runs_along(time: Scheduled) -> None:
    """Given a schedule with a run, when it is deleted, then neither is found, and a second time there is nothing."""
    one = time.hourly()
    run = time.fire(one)
    assert delete_schedule(time.store, one, agent="ana")
    assert not delete_schedule(time.store, one, agent="ana")
    for gone in (
        lambda: read_schedule(time.store, one, agent="ana"),
        lambda: run_history(time.store, one, agent="ana", limit=1),
        lambda: read_run(time.store, run.id, agent="ana"),
    ):
        with pytest.raises(NotFound, match="agent ana has no"):
            gone()


def test_schedules_are_an_agents_own(time: Scheduled) -> None:
    """Given a schedule of ana's, then kate neither finds, reads, changes, runs, nor deletes it, and may use its id."""
    create(time, draft())
    run = run_now(time.store, "one", agent="ana", now=time.now)
    assert found(time, agent="kate") == []
    kates: list[Any] = [
        lambda: read_schedule(time.store, "one", agent="kate"),
        lambda: update(time, "one", agent="kate", goal="mine"),
        lambda: pause(time, "one", agent="kate"),
        lambda: resume(time, "one", agent="kate"),
        lambda: upcoming(time.store, "one", agent="kate", count=1, now=time.now),
        lambda: run_now(time.store, "one", agent="kate", now=time.now),
        lambda: run_history(time.store, "one", agent="kate", limit=1),
        lambda: read_run(time.store, run.id, agent="kate"),
        lambda: cancel_run(time.store, run.id, agent="kate", rules=time.rules, now=time.now),
        lambda: complete_run(time.store, run.id, RunReport(), agent="kate", rules=time.rules, now=time.now),
    ]
    for call in kates:
        with pytest.raises(NotFound, match="agent kate has no"):
            call()
    assert not delete_schedule(time.store, "one", agent="kate")
    create(time, draft(goal="another thing"), agent="kate")
    assert read_schedule(time.store, "one", agent="ana").goal == "water the plants"
    assert read_run(time.store, run.id, agent="ana").status == "pending"


def test_schedules_are_a_workspaces_own(time: Scheduled) -> None:
    """Given schedules in two workspaces under one id, then each is changed and deleted alone."""
    create(time, draft())
    other = time.stores.workspace("other")
    create_schedule(other, draft(goal="else"), agent="ana", rules=time.rules, check_url=lambda _: None, now=time.now)
    update(time, "one", goal="changed")
    assert read_schedule(other, "one", agent="ana").goal == "else"
    assert delete_schedule(other, "one", agent="ana")
    assert found(time) == ["one"]


def test_filters_apply_together(time: Scheduled) -> None:
    """Given schedules that differ, then each filter leaves those that it names, and all given must apply."""
    create(time, draft(id="a", name="Plants", channel="kitchen", session="s"))
    time.advance(1)
    create(time, draft(Once(time.moment(60)), id="b", user="kate", goal="call the DENTIST", executor=HOOK))
    time.advance(1)
    create(time, draft(Interval(600), id="c", executor=TaskExecutor(task="work", queue="q"), name="dentist bill"))
    pause(time, "c")
    assert found(time) == ["c", "b", "a"]
    assert found(time, status=["paused"]) == ["c"]
    assert found(time, status=["paused", "active"]) == ["c", "b", "a"]
    assert found(time, name="Plants") == ["a"]
    assert found(time, text="dentist") == ["c", "b"]
    assert found(time, text="dentist", cadence="once") == ["b"]
    assert [found(time, executor=kind) for kind in ("llm", "webhook", "task")] == [["a"], ["b"], ["c"]]
    assert [found(time, cadence=kind) for kind in ("cron", "once", "interval")] == [["a"], ["b"], ["c"]]
    assert found(time, channel="kitchen") == found(time, session="s") == ["a"]
    nine = "2027-03-01T09:00:00Z"
    assert found(time, due_before=nine) == ["b"]
    assert found(time, due_after=nine) == ["a"]
    assert found(time, due_after="2027-03-01T10:00:00+01:00") == ["a"]
    assert found(time, text="a_c%") == []


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"status": ["done"]}, "status[0]"),
        ({"executor": "smtp"}, "executor"),
        ({"cadence": "weekly"}, "cadence"),
        ({"due_before": "tomorrow"}, "due_before"),
        ({"due_after": "2027-03-01T10:00:00"}, "due_after"),
        ({"user": " "}, "user"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(wanted: dict[str, Any], field: str) -> None:
    """Given a word that is none of those there are, then the filter is named."""
    with pytest.raises(Rejected) as caught:
        filter_of(**wanted)
    assert caught.value.field == field


def test_pages_show_each_schedule_once(time: Scheduled) -> None:
    """Given seven schedules of one moment, then pages of three have each once, the newest first, and the total."""
    for number in range(7):
        create(time, draft(id=f"s{number}"))
    pages = [search_schedules(time.store, filter_of(), agent="ana", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert {page.total for page in pages} == {7}
    assert [schedule.id for page in pages for schedule in page] == [f"s{number}" for number in range(6, -1, -1)]


def test_the_next_times_are_told_in_utc_and_on_the_clocks_of_the_zone(time: Scheduled) -> None:
    """Given a schedule in Lisbon, then its next times are told across the clock change; a paused one has none."""
    create(time, draft(Cron("0 9 28,29 3 *", "Europe/Lisbon")))
    following = upcoming(time.store, "one", agent="ana", count=2, now=time.now)
    assert following.at == [datetime(2027, 3, 28, 8, tzinfo=UTC), datetime(2027, 3, 29, 8, tzinfo=UTC)]
    assert following.local[1] == "Mon 2027-03-29 09:00 WEST (Europe/Lisbon)"
    assert upcoming(time.store, "one", agent="ana", count=1, now=time.now).at == following.at[:1]
    pause(time, "one")
    assert upcoming(time.store, "one", agent="ana", count=2, now=time.now).at == []
    create(time, draft(Once(time.moment(60)), id="two"))
    assert upcoming(time.store, "two", agent="ana", count=5, now=time.now).at == [time.moment(60)]
    for count in (0, 101):
        with pytest.raises(Rejected, match="1 to 100"):
            upcoming(time.store, "one", agent="ana", count=count, now=time.now)


def test_what_is_overdue_is_told_once(time: Scheduled) -> None:
    """Given a schedule that has missed its times, then it fires once for all of them, and then at those to come."""
    time.every(600)
    began = time.now
    time.advance(2_000)
    (one,) = found(time)
    following = upcoming(time.store, one, agent="ana", count=3, now=time.now)
    assert following.at == [from_micros(began + seconds * SECOND) for seconds in (600, 2_400, 3_000)]


def test_a_run_by_hand_leaves_the_next_time(time: Scheduled) -> None:
    """Given an hourly schedule, when run by hand, then a run is pending at once and the next hour stays; a second one
    is a conflict until it has ended."""
    one = time.hourly()
    before = time.schedule(one).next_run_at
    run = run_now(time.store, one, agent="ana", now=time.now)
    assert (run.trigger, run.status, run.due_at, run.coalesced) == ("manual", "pending", time.moment(), 0)
    assert time.schedule(one).next_run_at == before
    with pytest.raises(Conflict, match=f"run {run.id} of schedule {one} is pending") as caught:
        run_now(time.store, one, agent="ana", now=time.now)
    assert caught.value.field == "id"
    assert time.execute(run.id) == {"success": 1}
    again = run_now(time.store, one, agent="ana", now=time.now)
    assert again.id != run.id
    assert [kept.id for kept in run_history(time.store, one, agent="ana", limit=5)] == [again.id, run.id]
    assert [kept.id for kept in run_history(time.store, one, agent="ana", limit=5, offset=1)] == [run.id]


def test_a_run_asked_for_twice_under_its_id_is_one(time: Scheduled) -> None:
    """Given a run by hand with an id, when asked for again, under way or ended, then it is that run; an id of another
    schedule or another agent is taken."""
    one, two = time.hourly(), time.hourly()
    kates = time.hourly(agent="kate")
    run = run_now(time.store, one, agent="ana", now=time.now, run_id="mine")
    assert run_now(time.store, one, agent="ana", now=time.now + 1, run_id="mine") == run
    time.execute("mine")
    assert run_now(time.store, one, agent="ana", now=time.now + 2, run_id="mine").status == "success"
    assert len(time.runs(one)) == 1
    for schedule, agent in ((two, "ana"), (kates, "kate")):
        with pytest.raises(Conflict, match="id mine is in use for another run"):
            run_now(time.store, schedule, agent=agent, now=time.now, run_id="mine")


def test_a_cancelled_run_has_ended_and_counts_as_nothing(time: Scheduled) -> None:
    """Given a pending run, when cancelled, then it stays so when cancelled again, its task finds nothing to do, and
    the schedule goes on."""
    one = time.hourly()
    run = run_now(time.store, one, agent="ana", now=time.now)
    ended = cancel_run(time.store, run.id, agent="ana", rules=time.rules, now=time.now)
    assert (ended.status, ended.finished_at) == ("cancelled", time.moment())
    assert cancel_run(time.store, run.id, agent="ana", rules=time.rules, now=time.now + 1) == ended
    assert time.execute(run.id) == {"skipped": 1}
    stands = read_schedule(time.store, one, agent="ana")
    assert (stands.status, stands.last_run_status, stands.consecutive_failures) == ("active", "cancelled", 0)
    done = time.fire(one)
    with pytest.raises(Conflict, match=f"run {done.id} has ended: success"):
        cancel_run(time.store, done.id, agent="ana", rules=time.rules, now=time.now)


def test_a_report_ends_the_run_of_the_agents_own_workers_once(time: Scheduled) -> None:
    """Given a run of a task, when it is reported, then all of the report is kept; a second one changes nothing, one
    that says otherwise is a conflict, and so is a report of a run that Reverie executes itself."""
    one = time.hourly(executor=WORKERS)
    run = run_now(time.store, one, agent="ana", now=time.now)
    report = RunReport(output="x" * 600, turn_count=3, cost=0.25)
    time.advance(5)
    ended = complete_run(time.store, run.id, report, agent="ana", rules=time.rules, now=time.now)
    assert (ended.status, ended.summary, ended.output) == ("success", "x" * 500, "x" * 600)
    assert (ended.turn_count, ended.cost, ended.finished_at) == (3, 0.25, time.moment())
    late = RunReport(output="something else")
    assert complete_run(time.store, run.id, late, agent="ana", rules=time.rules, now=time.now + 1) == ended
    failed = RunReport(status="failed", error="no")
    with pytest.raises(Conflict, match="has ended: success"):
        complete_run(time.store, run.id, failed, agent="ana", rules=time.rules, now=time.now)
    two = time.hourly(executor=WebhookExecutor(url="https://example.org"))
    ours = run_now(time.store, two, agent="ana", now=time.now)
    with pytest.raises(Conflict, match="executed by Reverie itself"):
        complete_run(time.store, ours.id, report, agent="ana", rules=time.rules, now=time.now)


def test_the_last_twenty_runs_are_kept(time: Scheduled) -> None:
    """Given 23 runs, then the newest 20 of them are there, one that is under way not among those counted."""
    one = time.every(60)
    ids = [time.fire(one).id for _ in range(23)]
    under_way = run_now(time.store, one, agent="ana", now=time.now)
    kept = run_history(time.store, one, agent="ana", limit=100)
    assert [run.id for run in kept] == [under_way.id, *ids[:2:-1]]


def test_a_run_that_is_waited_for_is_returned_when_it_has_ended(time: Scheduled) -> None:
    """Given a pending run, when waited for, then its end is returned; one that does not end is a timeout that says
    how it stands, and one that is deleted meanwhile is not found."""
    one = time.hourly()
    run = run_now(time.store, one, agent="ana", now=time.now)
    pauses: list[float] = []
    ticks = iter(range(100))

    def wait(pause: Any) -> Any:
        return wait_until_ended(
            lambda: read_run(time.store, run.id, agent="ana"),
            timeout_seconds=3,
            monotonic=lambda: next(ticks),
            pause=pause,
        )

    with pytest.raises(WaitTimeout, match=f"run {run.id} is pending after 3 s"):
        wait(pauses.append)
    assert pauses
    assert wait(lambda _: time.execute(run.id)).status == "success"
    delete_schedule(time.store, one, agent="ana")
    with pytest.raises(NotFound):
        wait(pauses.append)


def test_times_are_kept_to_the_microsecond(time: Scheduled) -> None:
    """Given a moment with an offset and microseconds, then it is kept as that instant."""
    at = datetime.fromisoformat("2027-03-01T10:00:00.123456+01:00")
    made = create(time, draft(Once(at, "Europe/Berlin")))
    assert made.next_run_at == at
    assert made.cadence == Once(at, "Europe/Berlin")
    assert to_micros(at) == time.schedule("one").next_run_at
