"""Random steps of workers, deaths and retries on the work queue, against a model with one state for each row."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from storage.pipeline.work import Claim
from support.pipeline import Pipeline
from support.properties import for_steps

SECOND = 1_000_000
LEASE_SECONDS = 10
ROWS = 5


@dataclass(slots=True)
class Row:
    """What the model knows of a row: who holds it until when, how often a worker died with it, and when it is due."""

    token: int | None = None
    until: int = 0
    crashes: int = 0
    due: int | None = None
    state: str = "fresh"
    """fresh, held, later, buried or done"""


class WorkQueueMachine(RuleBasedStateMachine):
    """A row is held by one worker at a time, is finished once, and only by who holds it; only deaths count as such."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.pipe = Pipeline(Path(self.folder.name))
        self.pipe.say(*[f"row {number}" for number in range(ROWS)])
        self.pipe.ingest()
        self.now = 1_000_000 * SECOND
        self.rows = {number: Row() for number in range(1, ROWS + 1)}
        self.claims: list[Claim] = []

    def teardown(self) -> None:
        self.pipe.close()
        self.folder.cleanup()

    # --- the model ---

    def claimable(self, row: Row) -> bool:
        ended = row.state == "held" and row.until <= self.now
        return row.state == "fresh" or ended or (row.state == "later" and row.due is not None and row.due <= self.now)

    def mine(self, claim: Claim) -> list[int]:
        return [item for item in claim.items if self.rows[item].token == claim.token]

    # --- workers ---

    @rule(limit=st.integers(1, ROWS))
    def claim(self, limit: int) -> None:
        with self.pipe.store.writing() as tx:
            claim = tx.work.claim("chunk", now=self.now, lease_seconds=LEASE_SECONDS, limit=limit)
        if claim is None:
            assert not any(self.claimable(row) for row in self.rows.values())
            return
        assert 0 < len(claim.items) <= limit
        for item in claim.items:
            row = self.rows[item]
            assert self.claimable(row), f"row {item} is {row}"
            row.crashes += row.state == "held"
            assert row.crashes == claim.crashes, "only rows with the same number of deaths are claimed together"
            row.token, row.until, row.due, row.state = claim.token, self.now + LEASE_SECONDS * SECOND, None, "held"
        self.claims.append(claim)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.claims:
            claim = data.draw(st.sampled_from(self.claims))
            mine = self.mine(claim)
            with self.pipe.store.writing() as tx:
                own = tx.work.still_claimed(claim)
                assert own == set(mine), "a worker that lost its lease to another knows it"
                tx.chunks.mark_chunked("message", sorted(own), now=1)
                tx.work.finish(claim, claim.items)
            for item in mine:
                self.rows[item] = Row(state="done")

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.claims:
            claim = data.draw(st.sampled_from(self.claims))
            with self.pipe.store.writing() as tx:
                tx.work.release(claim)
            for item in self.mine(claim):
                self.rows[item] = Row()

    @rule(data=st.data(), seconds=st.integers(0, 5))
    def retry(self, data: st.DataObject, seconds: int) -> None:
        if self.claims:
            claim = data.draw(st.sampled_from(self.claims))
            at = self.now + seconds * SECOND
            with self.pipe.store.writing() as tx:
                tx.work.retry(claim, claim.items, at=at, error="away")
            for item in self.mine(claim):
                row = self.rows[item]
                self.rows[item] = Row(crashes=row.crashes, due=at, state="later")

    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        if self.claims:
            claim = data.draw(st.sampled_from(self.claims))
            with self.pipe.store.writing() as tx:
                tx.work.bury(claim, claim.items, error="never")
            for item in self.mine(claim):
                self.rows[item] = Row(state="buried")

    @rule(item=st.integers(1, ROWS))
    def revive(self, item: int) -> None:
        buried = self.rows[item].state == "buried"
        with self.pipe.store.writing() as tx:
            assert tx.work.revive("chunk", item) is buried
        if buried:
            self.rows[item] = Row()

    @rule(seconds=st.integers(1, 2 * LEASE_SECONDS))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    # --- what holds at all times ---

    @invariant()
    def all_questions_have_the_same_answer(self) -> None:
        with self.pipe.store.reading() as tx:
            work = tx.work
            assert [work.is_done("chunk", item) for item in self.rows] == [
                row.state == "done" for row in self.rows.values()
            ]
            assert work.is_waiting("chunk", now=self.now) == any(map(self.claimable, self.rows.values()))
            assert work.is_idle(["chunk"]) == all(row.state in ("done", "buried") for row in self.rows.values())
            assert work.has_buried("chunk") == any(row.state == "buried" for row in self.rows.values())
            assert work.backlog("chunk").waiting == sum(
                row.state in ("fresh", "held", "later") for row in self.rows.values()
            )


def test_random_steps_leave_each_row_with_one_worker_and_finish_it_once() -> None:
    """Given random steps, then the queue is what a model with one state for each row says."""
    run_state_machine_as_test(WorkQueueMachine, settings=for_steps(320))
