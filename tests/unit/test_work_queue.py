"""Who works on what: leases, fencing, retries, crashes, dead letters, and three ways to ask whether all is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from adapters.broker.monitor import Monitor
from memory.pipeline import chunking
from memory.pipeline.broker_status import read_broker
from memory.stage import MAX_CRASHES, retry_at, run_batches
from memory.status import StatusReader
from storage.pipeline.work import STAGES, Claim
from storage.stores import Stores
from storage.transaction import Transaction
from support.pipeline import PREFIX, WORKSPACE, Pipeline

SECOND = 1_000_000
T = TypeVar("T")


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with six messages that wait to be chunked."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("one", "two", "three", "four", "five", "six")
    pipe.ingest()
    yield pipe
    pipe.close()


def change(pipe: Pipeline, act: Callable[[Transaction], T]) -> T:
    with pipe.store.writing() as tx:
        return act(tx)


def claim(pipe: Pipeline, *, at: int = 0, limit: int = 2) -> Claim:
    found = try_claim(pipe, at=at, limit=limit)
    assert found is not None
    return found


def try_claim(pipe: Pipeline, *, at: int = 0, limit: int = 2) -> Claim | None:
    return change(pipe, lambda tx: tx.work.claim("chunk", now=at * SECOND, lease_seconds=10, limit=limit))


def idle_answers(pipe: Pipeline) -> list[bool]:
    """What both ways say: the store that is not open, and the open one."""
    pipe.stores.close()
    by_stores = pipe.stores.is_idle(WORKSPACE, STAGES)
    with pipe.store.reading() as tx:
        return [by_stores, tx.work.is_idle(STAGES)]


def test_the_longer_lease_of_a_slow_worker_has_not_ended_for_a_fast_one(pipe: Pipeline) -> None:
    """Given chunks that a slow host holds for long, when a host with short leases claims, then it gets no chunk."""
    pipe.chunk()
    slow, fast = (
        change(pipe, lambda tx, lease=lease: tx.work.claim("embed", now=0, lease_seconds=lease, limit=10))
        for lease in (700, 25)
    )
    assert slow is not None
    assert (len(slow.items), fast) == (6, None)


def test_two_workers_never_hold_the_same_row(pipe: Pipeline) -> None:
    """Given six rows, when three workers claim two each, then each row is held once and the fourth gets none."""
    held = [claim(pipe).items for _ in range(3)]
    assert sorted(item for items in held for item in items) == [1, 2, 3, 4, 5, 6]
    assert try_claim(pipe) is None


def test_a_finished_row_is_claimed_no_more_once_it_is_done(pipe: Pipeline) -> None:
    """Given a claim, when its rows are marked and finished together, then only the others are left."""
    first = claim(pipe)

    def finish(tx: Transaction) -> None:
        tx.chunks.mark_chunked("message", first.items, now=1)
        tx.work.finish(first, first.items)

    change(pipe, finish)
    assert claim(pipe, limit=10).items == (3, 4, 5, 6)
    assert pipe.count("claims") == 4


def test_a_released_row_is_as_if_it_had_never_been_claimed(pipe: Pipeline) -> None:
    """Given a claim, when it is released, then its rows come again, with no attempt and no crash."""
    first = claim(pipe)
    change(pipe, lambda tx: tx.work.release(first))
    again = claim(pipe)
    assert (again.items, again.attempts, again.crashes) == (first.items, 0, 0)


def test_a_slow_worker_whose_lease_ended_holds_nothing_and_commits_nothing(pipe: Pipeline) -> None:
    """Given a lease that ended and a second worker, when the first comes back, then every method of its is void."""
    slow = claim(pipe, limit=1)
    quick = claim(pipe, at=10, limit=1)
    assert quick.items == slow.items

    def come_back(tx: Transaction) -> None:
        assert tx.work.still_claimed(slow) == set()
        tx.work.finish(slow, slow.items)
        tx.work.retry(slow, slow.items, at=0, error="late")
        tx.work.bury(slow, slow.items, error="late")
        tx.work.release(slow)
        assert tx.work.still_claimed(quick) == set(quick.items)

    change(pipe, come_back)


def test_a_slow_chunker_whose_lease_ended_stores_no_chunk(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a chunker that is overtaken while it cuts, when it stores, then nothing is doubled."""
    cut = chunking.cut
    overtaken: list[int] = []

    def cut_slowly(source: object, check: object) -> object:
        if not overtaken:
            overtaken.append(1)
            pipe.advance(30)
            pipe.chunk()
        return cut(source, check)  # type: ignore[arg-type]

    monkeypatch.setattr(chunking, "cut", cut_slowly)
    pipe.chunk()
    pipe.drain(lambda: pipe.chunk().done)
    assert pipe.count("chunks") == 6
    assert pipe.count("message_chunks") == 6
    assert pipe.count("claims") == 0


def test_a_row_given_back_for_later_is_due_then_and_not_before(pipe: Pipeline) -> None:
    """Given a passing failure, when its time has not come, then fresh rows go first, and then it counts an attempt."""
    first = claim(pipe, limit=1)
    change(pipe, lambda tx: tx.work.retry(first, first.items, at=50 * SECOND, error="down"))
    assert claim(pipe, at=49, limit=10).items == (2, 3, 4, 5, 6)
    again = claim(pipe, at=50, limit=10)
    assert (again.items, again.attempts, again.crashes) == ((1,), 1, 0)


def test_a_lease_that_ended_counts_a_crash_and_the_row_is_claimed_alone(pipe: Pipeline) -> None:
    """Given a worker that died with three rows, when they are claimed again, then one by one, each a suspect."""
    claim(pipe, limit=3)
    again = [claim(pipe, at=11, limit=3) for _ in range(3)]
    assert [suspect.items for suspect in again] == [(1,), (2,), (3,)]
    assert [suspect.crashes for suspect in again] == [1, 1, 1]
    assert claim(pipe, at=11, limit=3).items == (4, 5, 6)


def test_the_rows_of_a_dead_worker_are_told_as_suspects_until_they_are_done(pipe: Pipeline) -> None:
    """Given a worker that died with three rows, then the status tells so from the end of its lease until they are done
    or set aside, whether somebody tries them or nobody comes."""

    def suspects(at: int) -> int:
        broker = partial(read_broker, pipe.inbox, Monitor(pipe.broker, prefix=PREFIX))
        reader = StatusReader(pipe.stores, broker, None)
        return reader.read(now=at * SECOND).stages["chunk"].suspects

    assert suspects(0) == 0
    claim(pipe, limit=3)
    assert [suspects(9), suspects(11)] == [0, 1], "how many is known when they are claimed again"
    again = claim(pipe, at=11, limit=48)
    assert [suspects(12), suspects(22)] == [3, 3]
    change(pipe, lambda tx: tx.work.bury(again, again.items[:1], error="never"))
    change(pipe, lambda tx: tx.work.retry(again, again.items[1:2], at=50 * SECOND, error="down"))
    assert suspects(12) == 2
    change(pipe, lambda tx: tx.work.finish(again, again.items[2:]))
    assert suspects(12) == 1


def test_a_row_that_kills_its_worker_three_times_is_a_dead_letter_and_the_others_go_on(pipe: Pipeline) -> None:
    """Given a row whose worker dies each time, when it has died thrice, then it is set aside with the reason."""
    for _ in range(MAX_CRASHES):
        change(pipe, lambda tx: tx.work.claim("chunk", now=pipe.now(), lease_seconds=10, limit=1))
        pipe.advance(11)
    reports = [pipe.chunk()]
    while reports[-1].more:  # its time may be up after each batch
        reports.append(pipe.chunk())
    assert (sum(report.buried for report in reports), sum(report.done for report in reports)) == (1, 5)
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type, letter.agent, letter.session) == ("chunk", "WorkerCrashed", "ana", "s")
    assert "died 3 times" in letter.error
    assert pipe.chunk().batches == 0


def test_a_buried_row_is_never_due_and_a_revived_one_is_fresh(pipe: Pipeline) -> None:
    """Given a buried row, when revived, then it is claimed as if new; reviving what is not buried does nothing."""
    first = claim(pipe, limit=1)
    change(pipe, lambda tx: tx.work.bury(first, first.items, error="never"))
    assert claim(pipe, at=10**6, limit=10).items == (2, 3, 4, 5, 6)
    assert change(pipe, lambda tx: tx.work.revive("chunk", 1))
    assert not change(pipe, lambda tx: tx.work.revive("chunk", 1))
    assert not change(pipe, lambda tx: tx.work.revive("chunk", 2)), "held, not buried"
    again = claim(pipe, at=10**6 + 1, limit=1)
    assert (again.items, again.attempts, again.crashes) == ((1,), 0, 0)


@pytest.mark.parametrize("back_seconds", [300, 2_400, 365 * 86_400])
def test_a_lease_from_before_the_clock_was_set_back_has_ended(pipe: Pipeline, back_seconds: int) -> None:
    """Given a worker that died, when the clock is set back, then its rows are claimed as soon as a lease could end."""
    claim(pipe, at=10**9, limit=10)
    assert try_claim(pipe, at=10**9 + 5) is None
    assert claim(pipe, at=10**9 - back_seconds).crashes == 1


@pytest.mark.parametrize(("attempts", "back_seconds"), [(1, 300), (3, 300), (20, 2_400), (20, 365 * 86_400)])
def test_a_retry_from_before_the_clock_was_set_back_is_due(pipe: Pipeline, attempts: int, back_seconds: int) -> None:
    """Given a retry after some failures, when the clock is set back by more than its wait, then it is tried at once."""
    for failed in range(attempts):
        held = claim(pipe, at=10**9 + 1_000 * failed, limit=10)
        at = retry_at((10**9 + 1_000 * failed) * SECOND, held.attempts)
        change(pipe, lambda tx, held=held, at=at: tx.work.retry(held, held.items, at=at, error="down"))
    last = 10**9 + 1_000 * (attempts - 1)
    assert try_claim(pipe, at=last) is None, "the clock was not set back: it has to wait"
    assert claim(pipe, at=last - back_seconds).attempts == attempts


def test_retries_come_at_growing_intervals_up_to_five_minutes() -> None:
    """Given more and more failures, then the wait doubles from 1 s to 300 s, a tenth of it random."""
    waits = [(retry_at(0, attempts) / SECOND) for attempts in range(12)]
    for attempts, wait in enumerate(waits):
        assert 0.9 * min(300, 2**attempts) <= wait <= 1.1 * min(300, 2**attempts)
    assert 270 <= retry_at(0, 10**6) / SECOND <= 330


@pytest.mark.parametrize("state", ["fresh", "held", "retrying", "buried", "done"])
def test_every_way_to_ask_whether_a_workspace_is_idle_says_the_same(pipe: Pipeline, state: str) -> None:
    """Given rows in each state, then file and store agree: only dead letters and what is done are no work."""
    held = claim(pipe, limit=10) if state != "fresh" else None

    def bring_about(tx: Transaction) -> None:
        assert held is not None
        if state == "retrying":
            tx.work.retry(held, held.items, at=2 * SECOND, error="down")
        elif state == "buried":
            tx.work.bury(held, held.items, error="never")
        elif state == "done":
            tx.chunks.mark_chunked("message", held.items, now=1)
            tx.work.finish(held, held.items)

    if held is not None:
        change(pipe, bring_about)
    idle = state in ("buried", "done")
    assert idle_answers(pipe) == [idle, idle]
    with pipe.store.reading() as tx:
        assert tx.work.is_waiting("chunk", now=1) is (state == "fresh")
        backlog = tx.work.backlog("chunk")
    expected = {"fresh": (6, 0, 0), "held": (6, 6, 0), "retrying": (6, 0, 6), "buried": (0, 0, 0), "done": (0, 0, 0)}
    assert (backlog.waiting, backlog.claimed, backlog.retrying) == expected[state]


@pytest.mark.sqlite("looks for a file")
def test_asking_whether_a_missing_file_is_idle_makes_no_file(tmp_path: Path) -> None:
    """Given a workspace that was just deleted, when it is looked at, then it is not made again."""
    stores = Stores(tmp_path)
    assert stores.is_idle(WORKSPACE, STAGES) is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sqlite("damages a file")
def test_a_damaged_file_is_not_called_idle(tmp_path: Path) -> None:
    """Given a file that is no database, when it is looked at, then whoever opens it in earnest will say so."""
    stores = Stores(tmp_path)
    path = stores.database_path(WORKSPACE)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nonsense" * 1000)
    assert stores.is_idle(WORKSPACE, STAGES) is False


def test_deleting_a_row_ends_its_claims(pipe: Pipeline) -> None:
    """Given claims of a session's rows, when it is forgotten, then none is left to be tried."""
    claim(pipe, limit=6)
    pipe.forget("s")
    assert pipe.count("claims") == 0
    assert try_claim(pipe, at=10**6) is None


def test_a_stage_stops_at_its_time_and_asks_for_another_wake_up() -> None:
    """Given work without end, when the budget is spent, then the run ends after the batch it is in."""
    clock = iter(range(100))
    report = run_batches(lambda _: True, budget_seconds=3, monotonic=lambda: next(clock))
    assert (report.batches, report.more) == (3, True)
    assert run_batches(lambda _: False).more is False
