"""The rows of time are found by their indexes among 10,000 schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from memory.scheduling.due_runs import claim_due
from reverie.clock import new_id
from storage.scheduling.records import NewSchedule
from storage.stores import Store, Stores
from storage.transaction import Transaction
from support.scheduled import SECOND, SKEW, START
from support.work import counted_sql, plan_of

COUNT = 10_000


# --- the indexes ---


def schedule(number: int) -> NewSchedule:
    return NewSchedule(
        id=new_id(),
        user="u",
        name=None,
        goal="water the plants " * 20,
        cadence='{"type":"cron","expression":"0 * * * *","tz":"UTC"}',
        executor='{"type":"llm"}',
        policy="always",
        timeout_seconds=600,
        recall_limit=8,
        channel=None,
        session=None,
        next_run_at=START + number * SECOND,
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with 10,000 schedules, each due in another second, and ten ended runs of each of a hundred."""
    stores = Stores(tmp_path_factory.mktemp("many"))
    store = stores.workspace("ws")
    with store.writing() as tx:
        for number in range(COUNT):
            new = schedule(number)
            tx.for_agent(f"a{number % 20}").schedules.add(new, now=START)
            if number % 100 == 0:
                tx.connection.execute(
                    text(
                        "INSERT INTO schedule_runs (id, agent_id, schedule_id, due_at, first_due_at,"
                        " trigger_kind, status, created_at, sent_at) SELECT :id || value, :agent, :id,"
                        " CAST(value AS INTEGER), CAST(value AS INTEGER),"
                        " 'schedule', 'success', 0, 0 FROM json_each('[0,1,2,3,4,5,6,7,8,9]')"
                    ),
                    {"id": new.id, "agent": f"a{number % 20}"},
                )
    yield store
    stores.close()


QUERIES: dict[str, tuple[Callable[[Transaction], Any], str]] = {
    "due": (lambda tx: tx.due_schedules.due(now=START + 9 * SECOND, limit=100), "schedules_due"),
    "next due": (lambda tx: tx.due_schedules.next_due_at(), "schedules_due"),
    "to send": (lambda tx: tx.open_runs.to_send(clock=START, lost_before=START, limit=100), "schedule_runs_open"),
    "stranded": (lambda tx: tx.open_runs.abandoned(clock=START, limit=100), "schedule_runs_open"),
    "next open": (lambda tx: tx.open_runs.next_at(lost_after=15), "schedule_runs_open"),
}


@pytest.mark.sqlite("reads its query plans")
@pytest.mark.parametrize("name", QUERIES)
def test_what_the_sweep_asks_is_answered_by_an_index_of_what_is_open(many: Store, name: str) -> None:
    """Given 10,000 schedules, then each question of the sweep is answered from a partial index, not from a table."""
    ask, index = QUERIES[name]
    plan = plan_of(many, ask)
    assert index in plan
    assert "SCAN s\n" not in plan
    assert all("INDEX" in line for line in plan.splitlines() if line.startswith(("SCAN", "SEARCH")))


@pytest.mark.sqlite("counts the steps of its statements")
def test_a_claim_of_one_among_ten_thousand_touches_that_one_only(many: Store) -> None:
    """Given 10,000 schedules of which one is due, when it is claimed, then SQLite has taken a few hundred steps."""
    with counted_sql(many.database.engine) as work:
        (batch,) = claim_due(many, now=START, clock=START + SKEW)
        assert list(claim_due(many, now=START, clock=START + SKEW)) == []
    assert len(batch) == 1
    # Reading 10,000 rows takes at least as many steps.
    assert work.hundreds_of_steps * 100 < COUNT
