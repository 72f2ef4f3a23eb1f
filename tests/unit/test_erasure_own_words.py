"""Reverie's own words are nobody's: an erasure looks for what a person said, not for names of jobs or error texts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import read_erasure, request_erasure
from reverie.clock import to_micros
from reverie.trust.calls import ErasureReceipt
from storage.curation import EntryDraft
from storage.memories.records import NewMemory
from support.scheduled import BAD, SECOND, Scheduled
from worker.runtime import Runtime

JOB = "reverie.extract_memories"
PAST = to_micros(datetime(2026, 1, 5, 8, 0, 30, tzinfo=UTC))


@pytest.fixture
def scheduled(runtime: Runtime) -> Iterator[Scheduled]:
    """A workspace of the same data folder whose schedules fire when a test says so."""
    made = Scheduled(runtime.settings.data, now=PAST, alert_after_failures=2)
    yield made
    made.close()


def erase(runtime: Runtime, user: str) -> ErasureReceipt:
    """Erase a user and return the receipt."""
    scope = Scope("user", user, None, None)
    erasure = request_erasure(runtime.stores, runtime.settings.data, scope, requested_by="tester", now=runtime.now())
    continue_erasures(runtime.erasure_services)
    receipt = read_erasure(runtime.stores, erasure.id).receipt
    assert receipt is not None
    return receipt


def remembered_by_job(runtime: Runtime, owner: str, content: str) -> None:
    """Store a memory as a job does, with an entry of the curation log."""
    draft = EntryDraft(why=f"said by {owner}", memories=[content])
    with (
        runtime.store("default").writing() as tx,
        tx.curation.entry(draft, job=JOB, agent="ana", action="extract", at=PAST),
    ):
        fresh = NewMemory(id=f"m-{owner}", content=content, created_at=PAST, owner_user_id=owner)
        tx.for_agent("ana").memories.add(fresh, now=PAST)


def test_the_name_of_a_job_is_no_leftover(runtime: Runtime) -> None:
    """Given memories that only one job has made, when a person is erased, then records of that job are no leftovers."""
    remembered_by_job(runtime, "kate", "The heron lantern of Cacilhas burns on odd Thursdays")
    with runtime.store("default").writing() as tx:
        tx.leases.acquire(JOB, now=PAST, seconds=1)

    receipt = erase(runtime, "kate")

    assert receipt.removed["default"]["curation_log"] == 1
    assert receipt.leftovers == {}


def test_another_users_failures_stay_though_they_read_the_same(runtime: Runtime, scheduled: Scheduled) -> None:
    """Given schedules of two users that fail alike, when one is erased, then runs and alerts of the other stay."""
    kates = scheduled.every(60, user="kate", goal="look after the heron lantern of Cacilhas", name="the same name")
    lifs = scheduled.every(60, user="lif", goal="water the plums behind the old house", name="the same name")
    for _ in range(2):
        for schedule in (kates, lifs):
            scheduled.fire(schedule, BAD)
    scheduled.now += SECOND
    number = len(scheduled.runs(kates))
    before = [(run.status, run.error, run.summary) for run in scheduled.runs(lifs)]
    alerts = [(one.kind, one.title, one.body) for one in scheduled.notifications() if one.user == "lif"]
    assert [error for status, error, _ in before if status == "failed"] == [BAD.error] * 2
    assert alerts

    receipt = erase(runtime, "kate")

    assert receipt.removed["ws"]["schedule_runs"] == number
    assert [(run.status, run.error, run.summary) for run in scheduled.runs(lifs)] == before
    assert [(one.kind, one.title, one.body) for one in scheduled.notifications()] == alerts
    assert receipt.leftovers == {}
