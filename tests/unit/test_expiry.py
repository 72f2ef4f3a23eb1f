"""What has ended does not grow for ever: it is removed after its days, and what waits is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from memory.memories.extraction_windows import progress_of
from memory.upkeep.maintenance import KeepRules, expire, expire_account, optimize_stores
from storage.pipeline.records import NewDeadLetter
from storage.scheduling.records import NewReminder
from storage.stores import Stores
from storage.upkeep.jobs import Usage
from support.pipeline import Pipeline
from support.scheduled import GOOD, Scheduled

DAY = 24 * 3_600 * 1_000_000
RULES = KeepRules()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    time = Scheduled(tmp_path / "scheduled")
    yield time
    time.close()


def letter(number: int, stage: str = "ingest") -> NewDeadLetter:
    return NewDeadLetter(
        agent="ana",
        session="s",
        stage=stage,
        item_id=str(number),
        payload=None,
        error_type="Rejected",
        error="no",
        attempts=1,
    )


def test_dead_letters_are_removed_after_their_days_and_beyond_their_number(pipe: Pipeline) -> None:
    """Given letters of a year and more than are kept, then the old ones and the oldest of the rest are gone."""
    now = pipe.now()
    with pipe.store.writing() as tx:
        tx.dead_letters.add([letter(number) for number in range(3)], now=now - 366 * DAY)
        tx.dead_letters.add([letter(number) for number in range(3, 10)], now=now - DAY)
    counts = expire(pipe.store, KeepRules(dead_letters_kept=5), now=now)
    assert counts == {"old_letters_dropped": 3, "surplus_letters_dropped": 2}
    assert [one.item_id for one in pipe.dead_letters()] == ["9", "8", "7", "6", "5"]
    assert expire(pipe.store, KeepRules(dead_letters_kept=5), now=now) == {}


def test_a_letter_of_a_row_that_is_gone_is_removed_and_one_that_waits_is_not(pipe: Pipeline) -> None:
    """Given letters of each stage, when their rows are gone, or were worked on since, then the letters go, too."""
    pipe.say("one", "two")
    pipe.ingest()
    with pipe.store.writing() as tx:
        (first, second) = tx.work.fresh("chunk", 10)
        gone = [letter(9_999, stage) for stage in ("chunk", "chunk-files", "chunk-memories", "embed", "index")]
        tx.dead_letters.add([letter(first, "chunk"), letter(second, "chunk"), *gone], now=pipe.now())
        tx.chunks.mark_chunked("message", [second], now=pipe.now())
    assert expire(pipe.store, RULES, now=pipe.now()) == {"obsolete_letters_dropped": 6}
    assert [one.item_id for one in pipe.dead_letters()] == [str(first)]


def test_one_shots_that_have_ended_are_removed_with_their_runs(time: Scheduled) -> None:
    """Given a one-shot of long ago, one of today and one to come, then the first is gone, and no recurring one."""
    old = time.once(60)
    time.fire(old)
    time.advance(91 * 86_400)
    new, coming, recurring = time.once(60), time.once(10**6), time.every(60)
    time.fire(new)
    assert expire(time.store, RULES, now=time.now) == {"ended_schedules_dropped": 1}
    assert time.runs(old) == []
    for kept in (new, coming, recurring):
        assert time.schedule(kept)
    assert [run.status for run in time.runs(new)] == ["success"]
    assert GOOD


def test_a_reminder_that_nobody_fetches_waits_for_a_year(time: Scheduled) -> None:
    """Given reminders that were due long ago and lately, then the first is gone."""
    with time.store.writing() as tx:
        rows = tx.for_agent("ana").reminders
        for name, due_at in (("old", time.now - 366 * DAY), ("new", time.now - DAY)):
            rows.add(
                NewReminder(name, None, "s", None, "kate", "the oven is hot", "pull", due_at), now=time.now - 366 * DAY
            )
    before = time.now + DAY // 2
    assert expire(time.store, RULES, now=before) == {"unclaimed_reminders_dropped": 1}
    with time.store.reading() as tx:
        assert tx.for_agent("ana").reminders.find("new") is not None


def test_the_progress_of_sessions_that_are_gone_is_removed(pipe: Pipeline) -> None:
    """Given positions, pauses and attempts of sessions, when they are gone, then those go; the others stay."""
    pipe.say("hello")
    pipe.ingest()
    with pipe.store.writing() as tx:
        progress = progress_of(tx)
        (waiting,) = progress.waiting(now=pipe.now(), limit=10)
        progress.advance(waiting, to=1, now=pipe.now())
        progress.set_watermark(up_to=5, now=pipe.now())
        progress.attempts.begin([waiting.ref_code], now=pipe.now())
        for item in ("GONE", "retry GONE", "reading GONE"):
            tx.connection.execute(
                text(
                    "INSERT INTO job_progress (job, item, position, at)"
                    " SELECT job, :item, position, at FROM job_progress LIMIT 1"
                ),
                {"item": item},
            )
    assert expire(pipe.store, RULES, now=pipe.now()) == {"progress_dropped": 3}
    assert pipe.count("job_progress") == 3
    with pipe.store.reading() as tx:
        assert progress_of(tx).attempts.deaths() == {waiting.ref_code: 1}


def test_promotions_of_what_is_gone_are_removed_after_a_while(pipe: Pipeline) -> None:
    """Given promotions of a message, of something that is gone, and of lately, then the second is removed."""
    (message,) = pipe.say("hello")
    pipe.ingest()
    now = pipe.now()
    with pipe.store.writing() as tx:
        for name, at in ((message, now - 500 * DAY), ("gone", now - 500 * DAY), ("lately", now)):
            tx.connection.execute(
                text(
                    "INSERT INTO memory_promotions (agent_id, memory_id, promoted_at, score, phase) VALUES"
                    " ('ana', :name, :at, 1.0, 'deep')"
                ),
                {"name": name, "at": at},
            )
    assert expire(pipe.store, RULES, now=now) == {"promotions_dropped": 1}
    assert pipe.count("memory_promotions", "memory_id = 'gone'") == 0


def test_receipts_and_usage_have_their_days(tmp_path: Path) -> None:
    """Given a receipt and usage of long ago, then they are gone; open erasures and those of lately stay."""
    stores = Stores(tmp_path)
    now = 10**16
    stores.usage().add(Usage("m", "summary", 1, 0, 1, 1, 0.0), now=now - 801 * DAY)
    stores.usage().add(Usage("m", "summary", 1, 0, 1, 1, 0.0), now=now)
    with stores.account().atomic() as connection:
        for name, finished in (("old", now - 1_826 * DAY), ("new", now - DAY), ("open", None)):
            connection.exec_driver_sql(
                "INSERT INTO erasures (id, kind, target_hash, requested_by, requested_at, step, finished_at)"
                " VALUES (?, 'user', 'h', 'p', 1, 'done', ?)",
                (name, finished),
            )
    assert expire_account(stores, RULES, now=now) == {"receipts_dropped": 1, "usage_dropped": 1}
    assert expire_account(stores, RULES, now=now) == {}
    stores.close()


def test_upkeep_removes_what_has_ended(pipe: Pipeline) -> None:
    """Given an old letter, when the databases are optimised, then it is gone and counted."""
    with pipe.store.writing() as tx:
        tx.dead_letters.add([letter(1)], now=pipe.now() - 366 * DAY)
    counts = optimize_stores(pipe.stores, now=pipe.now, recall_events_days=90)["workspaces"]["ws"]
    assert counts["old_letters_dropped"] == 1
    assert pipe.dead_letters() == []
