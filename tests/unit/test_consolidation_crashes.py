"""Consolidation killed between any two of its transactions, run twice at once, and overtaken: the end is the same."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.jobs import JobRun
from memory.upkeep import consolidation
from reverie import contract
from reverie.clock import now_micros
from storage.transaction import Transaction
from support.copied_data import copy_data
from support.kept import DEFAULT_POLICY, HOUR, NOW, Kept, at_cosine, direction

pytestmark = pytest.mark.slow

POLICY = replace(DEFAULT_POLICY, memories_per_scope=14, max_entries=13)
WRITING = JobRun.writing


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with memories for every step, of two agents, and batches so small that there are many."""
    monkeypatch.setattr(consolidation, "BATCH", 2)
    folder = tmp_path / "template"
    kept = Kept(folder)
    for agent in ("ada", "bob"):
        for number in range(3):
            kept.add(agent=agent, id=f"expired-{number}", expires_at=NOW - number)
            kept.add(agent=agent, id=f"often-{number}", access_count=5 + number)
            kept.add(agent=agent, id=f"faded-{number}", hours_ago=4_000, tags=("old",))
        for number in range(7):  # recalled so often together that the one which stays is promoted half way
            kept.add("The user likes green tea", agent=agent, id=f"tea-{number}", access_count=1, tags=(f"t{number}",),
                     vector=at_cosine(direction(900), 0.99, number=number), importance=0.3 + number / 20)  # fmt: skip
        kept.add("Anna likes tea", agent=agent, id="anna", vector=direction(900))
        for number in range(14):
            kept.add(agent=agent, id=f"more-{number}", hours_ago=100 * number)
    kept.close()
    return folder


def copied(template: Path, folder: Path) -> Kept:
    return Kept(copy_data(template, folder))


def outcome(kept: Kept) -> tuple[dict[str, Any], list[Any]]:
    """Every row, and the log as far as the order of two agents' entries does not matter."""
    kept.check()
    with kept.store.reading() as tx:
        changes = tx.connection.exec_driver_sql("SELECT table_name, before, after FROM curation_changes").all()
    # Which entry promoted a memory first, and with how many recalls, is all that may differ.
    actions = sorted({(action, memories) for action, memories in kept.actions()})
    return kept.rows(), [actions, sorted(str(tuple(c)) for c in changes if c[0] != "memories")]


def test_killed_between_any_two_transactions_and_run_again_the_end_is_the_same(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run killed before its nth transaction, when it runs again, then every row is as after a whole run."""
    whole = copied(template, tmp_path / "whole")
    counts = whole.consolidate(POLICY)
    assert counts == {"expired": 6, "promoted": 8, "pruned": 6, "merged": 12, "capped": 12}
    expected = outcome(whole)
    whole.close()

    transactions = 0
    while True:
        kept = copied(template, tmp_path / f"killed-{transactions}")
        finished = run_killed_before(kept, transactions, monkeypatch)
        monkeypatch.setattr(JobRun, "writing", WRITING)
        kept.consolidate(POLICY)
        assert outcome(kept) == expected, f"killed before transaction {transactions}"
        kept.close()
        shutil.rmtree(tmp_path / f"killed-{transactions}")
        if finished:
            break
        transactions += 1
    assert transactions >= 20


def run_killed_before(kept: Kept, transaction: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run until this transaction is begun; True when the run came to its end before."""
    begun = 0

    @contextmanager
    def writing(run: JobRun) -> Iterator[Transaction]:
        nonlocal begun
        if begun == transaction:
            raise Killed
        begun += 1
        with WRITING(run) as tx:
            yield tx

    monkeypatch.setattr(JobRun, "writing", writing)
    try:
        kept.consolidate(POLICY)
    except Killed:
        return False
    return True


def test_killed_within_a_transaction_nothing_of_it_is_there(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run killed before a commit, then the store is as before, with no entry open."""
    kept = copied(template, tmp_path / "killed")
    before = kept.rows()

    @contextmanager
    def writing(run: JobRun) -> Iterator[Transaction]:
        with WRITING(run) as tx:
            yield tx
            raise Killed

    monkeypatch.setattr(JobRun, "writing", writing)
    with pytest.raises(Killed):
        kept.consolidate(POLICY)
    assert kept.rows() == before
    assert kept.actions() == []
    kept.check()
    kept.close()


def test_of_two_copies_at_once_one_works(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a run in the middle of its work, when another begins, then that does nothing, and the end is one run's."""
    expected = copied(template, tmp_path / "whole")
    expected.consolidate(POLICY)
    kept = copied(template, tmp_path / "twice")
    second: list[dict[str, int]] = []

    @contextmanager
    def writing(run: JobRun) -> Iterator[Transaction]:
        if run.has_lease and not second:
            other = threading.Thread(target=lambda: second.append(kept.consolidate(POLICY)))
            other.start()
            other.join()
        with WRITING(run) as tx:
            yield tx

    monkeypatch.setattr(JobRun, "writing", writing)
    kept.consolidate(POLICY)
    assert second == [{"held_elsewhere": 1}]
    assert outcome(kept) == outcome(expected)
    kept.close()
    expected.close()


def test_who_was_overtaken_changes_nothing_more(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run so slow that its lease was taken over, then it stops, says so, and leaves the rest to the other."""
    kept = copied(template, tmp_path / "slow")
    batches = 0

    @contextmanager
    def writing(run: JobRun) -> Iterator[Transaction]:
        nonlocal batches
        batches += 1
        if batches == 3:
            with kept.store.writing() as tx:
                later = now_micros() + 24 * HOUR
                assert tx.leases.acquire(contract.CONSOLIDATE_MEMORIES, now=later, seconds=-48 * 3_600.0) is not None
        with WRITING(run) as tx:
            yield tx

    monkeypatch.setattr(JobRun, "writing", writing)
    assert kept.consolidate(POLICY) == {"expired": 3, "held_elsewhere": 1}
    monkeypatch.setattr(JobRun, "writing", WRITING)
    assert kept.consolidate(POLICY)["merged"] == 12
    kept.close()
