"""Pruning of what faded or expired, as a job: daily, at each start, by hand, and as told without doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_fields

from beat_schedule import PERIODIC_JOBS
from cli.status import _counts_text, _result
from memory.idle_stores import IdleStores, run_where_changed
from memory.jobs import JobRun, JobScope, RunOptions, run_on_stores
from memory.lifecycle.curation import undo_entry
from memory.upkeep.consolidation import next_pruning, prune_decayed
from memory.upkeep.relevance import CurationPolicy, hours_until_pruned, is_prunable
from reverie import contract
from reverie.clock import to_micros
from reverie.contract import ACCOUNT_STORE
from reverie.pipeline.status import JobStatus
from storage.memories.records import RATES
from storage.memories.sweeps import MemorySweeps
from storage.stores import FileStamp
from storage.upkeep.jobs import JobRun as PastRun
from support.kept import AGENT, DEFAULT_POLICY, HOUR, NOW, Kept, direction
from tasks import upkeep as tasks
from worker.app import app, use_runtime
from worker.app import settings as app_settings
from worker.beat import CatchUpScheduler
from worker.runtime import Runtime
from worker.settings import Settings


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A workspace with one memory of each fate."""
    one = Kept(tmp_path / "data")
    one.add(id="expired", expires_at=NOW)
    one.add(id="faded", hours_ago=4_000)
    one.add("The user likes tea", id="tea", vector=direction(1), access_count=9)
    one.add("User likes tea.", id="tea-again", vector=direction(1), hours_ago=50)
    one.add(id="fresh", hours_ago=1)
    yield one
    one.close()


def prune(kept: Kept, policy: CurationPolicy = DEFAULT_POLICY, *, dry_run: bool = False) -> dict[str, Any]:
    options = RunOptions(dry_run=dry_run)
    return run_on_stores(
        kept.stores, contract.PRUNE_DECAYED, lambda run: prune_decayed(run, policy), now=NOW, options=options
    )


def test_pruning_neither_promotes_nor_merges(kept: Kept) -> None:
    """Given one of each, then what expired and faded goes, and nothing is merged, promoted or capped by its scope."""
    counts = prune(kept, replace(DEFAULT_POLICY, memories_per_scope=1))

    assert (counts["expired"], counts["pruned"], counts.get("capped", 0)) == (1, 1, 0)
    assert kept.standing() == {"tea", "tea-again", "fresh"}
    assert kept.get("tea").lifetime == "short_term"
    kept.check()


def test_pruning_keeps_to_max_entries(kept: Kept) -> None:
    """Given a cap on all, then the least relevant beyond it go, and their entries are of this job."""
    assert prune(kept, replace(DEFAULT_POLICY, max_entries=2))["capped"] == 1
    assert kept.standing() == {"tea", "fresh"}
    with kept.store.reading() as tx:
        assert {entry.job for entry in tx.curation.page()} == {contract.PRUNE_DECAYED}


@pytest.mark.parametrize("task", [contract.PRUNE_DECAYED, contract.CONSOLIDATE_MEMORIES])
def test_max_entries_is_one_limit_for_all_stores_of_an_agent(
    tmp_path: Path, task: str, make_runtime: Callable[..., Runtime]
) -> None:
    """Given three memories in each of three stores, then four are left in all, other agents and tenants apart."""
    kept = Kept(tmp_path / "data")
    kept.stores.tenants().set("theirs", "acme")
    stores = ("ws", "second", ACCOUNT_STORE, "theirs")
    for age, name in enumerate(stores):
        kept.name = name
        for number in range(3):
            kept.add(id=f"{name}{number}", hours_ago=20 * number + age, tier="account")
        kept.add(id="of-another", agent="bob")
    kept.name = ACCOUNT_STORE
    kept.add(id="of-acme", hours_ago=90, tier="account", tenant="acme")
    kept.add(id="expired", expires_at=NOW, tier="account")

    def standing() -> set[str]:
        found = set[str]()
        for kept.name in stores:
            found |= kept.standing()
        return found

    app.loader.import_default_modules()
    job = app.tasks[task].body
    before = standing()
    with use_runtime(make_runtime(clock=lambda: NOW, max_entries=4)):
        planned = job(dry_run=True)
        assert (planned["expired"], planned["capped"], standing()) == (1, 5, before)
        assert sorted(change["about"] for change in planned["planned"]) == sorted(
            ["expired", "ws2", "second1", "second2", f"{ACCOUNT_STORE}1", f"{ACCOUNT_STORE}2"]
        )
        assert job(manual=True, scope=JobScope(workspace="second"))["capped"] == 2, "no more than of all"
        done = job()
        assert (done["expired"], done["capped"], done["stores"]["ws"]["capped"]) == (1, 3, 1)
        assert standing() == {"ws0", "ws1", "second0", f"{ACCOUNT_STORE}0", "of-acme", "theirs0", "theirs1", "theirs2"}
        kept.name = "ws"
        with kept.store.reading() as tx:
            (entry,) = tx.curation.page()
            assert (entry.action, entry.why) == ("cap", "the least relevant of more than 4 in all")
        undo_entry(kept.store, agent=AGENT, entry=entry.id, now=NOW)
        assert job(manual=True)["capped"] == 1, "what was undone stays, and another one goes instead"
        assert "ws2" in kept.standing()
        assert "capped" not in job(manual=True)
    kept.close()


def test_a_dry_run_of_pruning_tells_what_it_would_do(kept: Kept) -> None:
    """Given something to prune, then a dry run tells as much as the run does, by workspace too, and changes nothing."""
    before = kept.rows()
    planned = prune(kept, dry_run=True)
    assert kept.rows() == before
    done = prune(kept)
    assert {name: planned[name] for name in ("looked_at", "expired", "pruned")} == {
        name: done[name] for name in ("looked_at", "expired", "pruned")
    }
    assert done["stores"]["ws"]["pruned"] == planned["stores"]["ws"]["pruned"] == 1


def test_pruning_twice_is_pruning_once(kept: Kept) -> None:
    """Given a run, when it runs again, then it finds nothing."""
    prune(kept)
    after, log = kept.rows(), kept.actions()
    counts = prune(kept)
    assert not counts.get("expired")
    assert not counts.get("pruned")
    assert (kept.rows(), kept.actions()) == (after, log)


# --- as a task ---


@pytest.mark.parametrize("task", [contract.PRUNE_DECAYED, contract.CONSOLIDATE_MEMORIES])
def test_the_tasks_run_once_a_period_and_their_counts_are_kept(
    kept: Kept, task: str, make_runtime: Callable[..., Runtime]
) -> None:
    """Given a runtime, when a task runs, runs again and runs dry, then its counts are kept of the first run alone."""
    here = make_runtime(clock=lambda: NOW)
    app.loader.import_default_modules()
    body = app.tasks[task].body
    with use_runtime(here):
        planned = body(dry_run=True)
        assert here.stores.jobs().last_runs() == {}
        done = body()
        assert done["expired"] == planned["expired"] == 1
        assert done["pruned"] == planned["pruned"] == 1
        assert body() == {"skipped": 1}
        assert here.stores.jobs().last_runs()[task].counts == done
        assert body(manual=True)["looked_at"] == done["looked_at"] - sum(
            done.get(name, 0) for name in ("expired", "pruned", "merged")
        )


def test_the_settings_reach_the_job(kept: Kept, make_runtime: Callable[..., Runtime]) -> None:
    """Given other limits and rates in the settings, then the policy is made of them."""
    here = make_runtime(clock=lambda: NOW, memories_per_scope=7, max_entries=1, decay_profile="fast")
    assert here.settings.curation_policy == CurationPolicy(rates=RATES["fast"], memories_per_scope=7, max_entries=1)
    with use_runtime(here):
        assert tasks.prune.body(manual=True)["capped"] > 0


def test_the_status_tells_what_a_job_did(kept: Kept) -> None:
    """Given the counts of a run, then the status tells those that are more than nothing, else `ok`."""
    assert _counts_text(prune(kept)) == "1 expired, 1 pruned"
    assert _counts_text(prune(kept)) == "ok"


def test_a_run_that_has_not_ended_is_not_told_as_done() -> None:
    """Given a run that has started, then it runs, or has no result without workers; once it has ended it has one."""
    started = JobStatus(started_at=datetime.now(UTC), finished_at=None, counts={}, error=None)
    assert _result(started, has_workers=True) == "running"
    assert _result(started, has_workers=False) == "-"
    ended = replace_fields(started, finished_at=datetime.now(UTC))
    assert _result(ended, has_workers=True) == "ok"
    assert _result(replace_fields(ended, error="the disk is full"), has_workers=False) == "the disk is full"


# --- at the start ---


def due_in(job: str, last: PastRun | None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """How long after a start of beat a job is due."""
    monkeypatch.setattr("worker.beat.settings", settings)
    (row,) = (one for one in PERIODIC_JOBS if one.task == job)
    now = datetime(2026, 5, 1, tzinfo=UTC)
    scheduler = CatchUpScheduler.__new__(CatchUpScheduler)
    scheduler.app = app
    entry = scheduler._entry(row, last, now)
    due: datetime = entry.last_run_at + row.every(settings)
    return due - now


def test_pruning_runs_after_every_start_and_hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a run twenty minutes ago, when beat starts, then pruning is due in a minute, and other jobs as before."""
    lately = PastRun("job", 1, to_micros(datetime(2026, 4, 30, 23, 40, tzinfo=UTC)), None, {}, None)
    assert due_in(contract.PRUNE_DECAYED, lately, app_settings, monkeypatch) == timedelta(minutes=1)
    assert due_in(contract.PRUNE_DECAYED, None, app_settings, monkeypatch) == timedelta(minutes=1)
    assert due_in(contract.CONSOLIDATE_MEMORIES, lately, app_settings, monkeypatch) == timedelta(hours=5, minutes=40)


def test_a_start_soon_after_another_prunes_again(kept: Kept, make_runtime: Callable[..., Runtime]) -> None:
    """Given a run, when a start ten minutes later asks again, then it runs; two starts at once are one."""
    minute = HOUR // 60
    for minutes, skipped in ((0, False), (10, False), (10, True)):
        with use_runtime(make_runtime(clock=lambda at=NOW + minutes * minute: at)):
            assert ("skipped" in tasks.prune.body()) is skipped


def test_an_idle_store_is_pruned_when_the_next_memory_expires_or_has_faded(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a store in which nothing is due, then its runs are left out until the time of the next memory."""
    monkeypatch.setattr(FileStamp, "is_settled", lambda *_: True)  # its files are of today, and the job's time is not
    kept.add(id="short", expires_at=NOW + 5 * HOUR)
    idle, policy, looked = IdleStores(), DEFAULT_POLICY, list[int]()

    def run(hours: float) -> dict[str, Any]:
        def work(run: JobRun) -> None:
            looked.append(round(hours))
            prune_decayed(run, policy)

        return run_where_changed(
            kept.stores, contract.PRUNE_DECAYED, work, now=NOW + int(hours * HOUR), idle_stores=idle,
            next_at=lambda store: next_pruning(store, policy), options=RunOptions(),
        )  # fmt: skip

    assert (run(0)["expired"], run(1)["looked_at"]) == (1, 4)
    looked.clear()
    for hour in (2, 3, 4):
        run(hour)
    assert looked == []
    assert run(5.1)["expired"] == 1
    assert "short" not in kept.standing()
    with kept.store.reading() as tx:
        fresh = next(one for one in MemorySweeps(tx.connection, AGENT).outlines() if one.id == "fresh")
    fades = fresh.accessed_at + round(hours_until_pruned(fresh, policy=policy) * HOUR)
    assert not is_prunable(fresh, now=fades - HOUR, policy=policy)
    assert is_prunable(fresh, now=fades + HOUR, policy=policy)
