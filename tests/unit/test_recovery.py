"""The sweeps: what was lost is made good, who has nothing to do is not looked at, and a thousand idle cost nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.broker.inbox import WorkerInbox
from memory.idle_stores import IdleFiles, IdleStores
from memory.pipeline.ingest import ingest_batch
from memory.pipeline.recovery import StageSweep, backfill, recover_inbox
from memory.upkeep import maintenance as upkeep
from reverie import contract
from reverie.errors import StoreUnavailable
from storage import status
from storage.pipeline.work import STAGES
from storage.stores import Stores
from support.pipeline import PREFIX, WORKSPACE, Pipeline, turns

pytestmark = pytest.mark.slow

# A file's stamp counts only when it is older than this: what the sweep calls settled.
SETTLED_SECONDS = 3


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in an inbox counts as older than the grace of 20 s."""
    stats = WorkerInbox.stats
    monkeypatch.setattr(
        WorkerInbox,
        "stats",
        lambda self, name: (now := stats(self, name))._replace(oldest_age_seconds=now.size and 60.0),
    )


class Sweep:
    """A stage sweep that records which stages it notified."""

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe
        self.sweep = StageSweep(STAGES)
        self.notified: list[tuple[str, str]] = []

    def run(self) -> tuple[int, list[tuple[str, str]]]:
        """How many workspaces were looked at and who was notified."""
        self.notified.clear()
        report = self.sweep.run(self.pipe.stores, now=self.pipe.now(), notify=lambda *who: self.notified.append(who))
        return report.looked_at, list(self.notified)


def recover(pipe: Pipeline) -> tuple[int, list[str]]:
    stored: list[str] = []
    report = recover_inbox(
        pipe.ingest_services, pipe.stores, now=pipe.now, on_batch=lambda name, _: stored.append(name)
    )
    assert report.errors == {}
    return report.recovered, stored


def test_what_lies_in_the_inbox_too_long_is_stored(pipe: Pipeline, aged: None) -> None:
    """Given 1,200 messages whose notification was lost, when the sweep comes, it stores them itself, in batches."""
    ids = [message_id for _ in range(4) for message_id in pipe.say(*[str(number) for number in range(300)])]
    assert recover(pipe) == (1_200, [WORKSPACE] * 3)
    assert [message.id for message in pipe.messages()] == ids
    assert recover(pipe) == (0, [])


def test_what_has_just_come_is_left_to_its_wake_up(pipe: Pipeline) -> None:
    """Given a message of this moment, when the sweep comes, then it stays: its notification is on its way."""
    pipe.say("fresh")
    assert recover(pipe) == (0, [])
    assert pipe.waiting_in_inbox() == 1


def test_the_inbox_sweep_stops_at_its_time(pipe: Pipeline, aged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a backlog and no time, when the sweep comes, then it hands its worker back."""
    pipe.say("waits")
    monkeypatch.setattr("memory.pipeline.recovery._SWEEP_BUDGET_SECONDS", 0.0)
    assert recover(pipe) == (0, [])
    assert pipe.waiting_in_inbox() == 1


def test_an_inbox_under_a_name_that_is_no_workspace_is_cleared(pipe: Pipeline, aged: None, tmp_path: Path) -> None:
    """Given a name that leaves the folder, when the sweep comes, then no file is made and the error names it."""
    pipe.broker.sadd(f"{PREFIX}inboxes", "../../etc")
    pipe.broker.hset(f"{PREFIX}inbox:../../etc", "ana\x1fx", "1 {}")
    report = recover_inbox(pipe.ingest_services, pipe.stores, now=pipe.now)
    assert list(report.errors) == ["../../etc"]
    assert pipe.inbox.workspaces() == []
    assert not (tmp_path / "data").exists()


def test_a_copy_of_a_workspace_under_a_name_of_ones_own_is_no_workspace(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a folder copied by hand beside its workspace, then it is listed nowhere and holds up no sweep."""
    pipe.say("hello")
    pipe.ingest()
    workspaces = tmp_path / "data" / "workspaces"
    shutil.copytree(workspaces / WORKSPACE, workspaces / f"{WORKSPACE}.bak")
    assert pipe.stores.names() == [WORKSPACE]
    report = StageSweep(STAGES).run(pipe.stores, now=pipe.now(), notify=lambda _stage, _workspace: None)
    assert (report.looked_at, report.notified, report.errors) == (1, {"chunk": 1}, {})


def test_the_backfill_stops_at_its_time_and_names_a_workspace_that_cannot_be_used(pipe: Pipeline) -> None:
    """Given a workspace with chunks to embed, then it has its turn within the time, none after it, and fails alone."""
    pipe.say("hello")
    pipe.ingest()
    pipe.chunk()

    def fail(workspace: str) -> dict[str, int]:
        raise StoreUnavailable(f"{workspace} is full")

    assert backfill(pipe.stores, embed=lambda _workspace: {"done": 7}) == {"done": 7}
    assert backfill(pipe.stores, embed=lambda _workspace: {"done": 7}, budget_seconds=-1) == {"done": 0}
    assert backfill(pipe.stores, embed=fail) == {"done": 0, "errors": {WORKSPACE: f"{WORKSPACE} is full"}}


def test_a_new_process_knows_what_backfill_and_verification_found(pipe: Pipeline, tmp_path: Path) -> None:
    """Given runs that found all chunks embedded and a sound file, then the next process opens no workspace for them."""
    pipe.say("hello")
    pipe.settle()
    pipe.advance(60)

    def idle_stores() -> IdleStores:
        return IdleStores(IdleFiles(tmp_path / "idle", "same"))

    def verified() -> dict[str, Any]:
        return upkeep.verify_stores(pipe.stores, now=pipe.now(), idle_stores=idle_stores())

    backfill(pipe.stores, embed=lambda _: {}, idle_stores=idle_stores(), now=pipe.now())
    assert idle_stores().changed(contract.BACKFILL_EMBEDDINGS, pipe.stores, now=pipe.now()) == []
    assert set(verified()["workspaces"]) == {WORKSPACE}
    assert verified() == {"workspaces": {}}


def test_upkeep_stops_at_its_time_and_says_how_many_it_did_not_reach(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no time at all, then no workspace is verified and the report says so."""
    pipe.say("hello")
    pipe.ingest()
    assert set(upkeep.verify_stores(pipe.stores)["workspaces"]) == {WORKSPACE}
    monkeypatch.setattr(upkeep, "_BUDGET_SECONDS", -1.0)
    assert upkeep.verify_stores(pipe.stores) == {"workspaces": {}, "not_reached": 1}


def test_the_stage_sweep_wakes_what_is_due_stage_by_stage(pipe: Pipeline) -> None:
    """Given work whose notifications were lost at each stage, when the sweep comes, it notifies just that stage."""
    sweep = Sweep(pipe)
    pipe.say("hello")
    pipe.hand_in("file:///a", "text")
    pipe.ingest()
    assert sweep.run() == (1, [("chunk", WORKSPACE), ("chunk-files", WORKSPACE)])
    pipe.drain(lambda: pipe.chunk().more)
    assert sweep.run() == (1, [("embed", WORKSPACE)])
    pipe.embed()
    assert sweep.run() == (1, [("index", WORKSPACE)])
    pipe.index()
    assert sweep.run() == (1, [])


def test_work_that_a_living_worker_holds_wakes_nobody(pipe: Pipeline) -> None:
    """Given a lease that has not ended, then the sweep is quiet; given one that has, then it notifies the stage."""
    sweep = Sweep(pipe)
    pipe.say("hello")
    pipe.ingest()
    with pipe.store.writing() as tx:
        tx.work.claim("chunk", now=pipe.now(), lease_seconds=25, limit=10)
    assert sweep.run() == (1, [])
    pipe.advance(26)
    assert sweep.run() == (1, [("chunk", WORKSPACE)])


def test_an_idle_workspace_is_looked_at_again_only_when_it_was_written(pipe: Pipeline) -> None:
    """Given a workspace with nothing to do, then it is looked at once, and once more after each write."""
    sweep = Sweep(pipe)
    pipe.say("hello")
    pipe.settle()
    pipe.advance(SETTLED_SECONDS)
    assert [sweep.run()[0] for _ in range(3)] == [1, 0, 0]
    pipe.say("more")
    pipe.ingest()
    assert [sweep.run()[0] for _ in range(3)] == [1, 1, 1]
    pipe.settle()
    pipe.advance(SETTLED_SECONDS)
    assert [sweep.run()[0] for _ in range(3)] == [1, 0, 0]


@pytest.mark.sqlite("the times of its files may lag behind writes")
def test_what_was_written_a_moment_ago_is_not_taken_for_settled(pipe: Pipeline) -> None:
    """Given a file whose time may not yet tell a further write, then it is looked at again."""
    sweep = Sweep(pipe)
    pipe.say("hello")
    pipe.settle()
    assert [sweep.run()[0] for _ in range(2)] == [1, 1]


@pytest.mark.sqlite("damages a file")
def test_dead_letters_and_damaged_files_hold_up_no_sweep(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a workspace that cannot be opened, then its error is named and the others are notified."""
    broken = tmp_path / "data" / "workspaces" / "a-broken" / "memory.db"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no database" * 1_000)
    pipe.say("hello")
    pipe.ingest()
    sweep = Sweep(pipe)
    report = sweep.sweep.run(pipe.stores, now=pipe.now(), notify=lambda *who: sweep.notified.append(who))
    assert (list(report.errors), sweep.notified) == (["a-broken"], [("chunk", WORKSPACE)])


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 1,000 workspaces in which everything is done: copies of one."""
    data = tmp_path_factory.mktemp("thousand") / "data"
    pipe = Pipeline(data)
    pipe.say("hello")
    pipe.settle()
    pipe.close()
    model = data / "workspaces" / WORKSPACE / "memory.db"
    for number in range(999):
        folder = data / "workspaces" / f"w{number:03}"
        folder.mkdir()
        shutil.copy2(model, folder / "memory.db")
    for path in data.glob("workspaces/*/memory.db"):
        os.utime(path, (1, 1))
    return data


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The databases that were connected to, while no store may be opened in full."""
    made: list[str] = []
    connect = status.pysqlite3.connect

    def counted(database: str, **options: Any) -> Any:
        made.append(database)
        return connect(database, **options)

    monkeypatch.setattr(status.pysqlite3, "connect", counted)
    monkeypatch.setattr(Stores, "workspace", lambda *_, **__: pytest.fail("an idle store was opened in full"))
    return made


def test_a_sweep_looks_at_few_of_many_workspaces_in_hand(pipe: Pipeline) -> None:
    """Given 30 workspaces whose work is queued already, then a sweep looks at 20 of them."""
    for number in range(29):
        pipe.stores.workspace(f"w{number}")
    names = list(pipe.stores.names())
    sweep = StageSweep(STAGES)
    assert sweep.run(pipe.stores, now=pipe.now(), notify=lambda *_: None, queued=lambda: names).looked_at == 20


@pytest.mark.sqlite("counts the files that are opened")
def test_the_first_sweep_of_a_cold_process_over_a_thousand_idle_workspaces_is_cheap_and_the_next_cheaper(
    thousand: Path, connections: list[str]
) -> None:
    """Given 1,000 idle workspaces, when a new process sweeps, then it opens none in full and connects once to each;
    when it sweeps again, then it connects to none of them."""
    stores, sweep = Stores(thousand), StageSweep(STAGES)
    report = sweep.run(stores, now=10**15, notify=lambda *_: pytest.fail("nothing is due"))
    assert (report.looked_at, report.errors) == (1_000, {})
    assert len(connections) == len(set(connections)) == 1_000
    connections.clear()
    for _ in range(3):
        report = sweep.run(stores, now=10**15, notify=lambda *_: pytest.fail("nothing is due"))
        assert report.looked_at == 0
    assert connections == []
    stores.close()


def test_a_sweep_over_very_many_looks_first_where_no_task_waits(pipe: Pipeline) -> None:
    """Given 60 workspaces with work and tasks of 50 of them, then all others are notified, and few of the 50."""
    names = [f"crowd-{number}" for number in range(60)]
    for name in names:
        pipe.inbox.accept(name, turns("hello"))
        ingest_batch(pipe.ingest_services, pipe.stores.workspace(name), now=pipe.now())
    notified = set[str]()
    StageSweep(STAGES).run(
        pipe.stores,
        now=pipe.now() + 10_000_000,
        notify=lambda _stage, name: notified.add(name),
        queued=lambda: set(names[10:]),
    )
    assert notified >= set(names[:10])
    assert len(notified) < 40


def test_a_sweep_over_very_many_looks_first_at_those_that_lie_still(pipe: Pipeline) -> None:
    """Given 60 workspaces with work and 50 of them just written, then all others are notified, and few of the 50."""
    names = [f"crowd-{number}" for number in range(60)]
    for name in names:
        pipe.inbox.accept(name, turns("hello"))
        ingest_batch(pipe.ingest_services, pipe.stores.workspace(name), now=pipe.now())
    now, notified = pipe.now(), set[str]()
    for position, name in enumerate(names):
        path, at = pipe.stores.database_path(name), now / 1_000_000 - (SETTLED_SECONDS if position < 10 else 0)
        for file in (path, f"{path}-wal"):
            os.utime(file, (at, at))
    StageSweep(STAGES).run(pipe.stores, now=now, notify=lambda _stage, name: notified.add(name))
    assert notified >= set(names[:10])
    assert len(notified) < 40


def test_after_a_flush_of_the_broker_everything_stored_becomes_searchable(pipe: Pipeline) -> None:
    """Given work at every stage and an empty broker, when the sweep notifies what is due, then all is searchable."""
    for number, stages in enumerate(((), (pipe.chunk,), (pipe.chunk, pipe.embed))):
        pipe.say(*[f"zanzibar {number} {part}" for part in range(20)])
        pipe.ingest()
        for stage in stages:
            stage()
    pipe.say("zanzibar last")
    pipe.ingest()
    pipe.broker.flushall()
    bodies = {"chunk": pipe.chunk, "chunk-files": pipe.chunk, "embed": pipe.embed, "index": pipe.index}
    sweep = Sweep(pipe)
    rounds = 0
    while (notified := sweep.run()[1]) and rounds < 10:
        rounds += 1
        for stage, _ in notified:
            bodies[stage]()
    assert rounds <= 3
    assert len(pipe.recall("zanzibar", mode="vector", limit=100)) == 61
    assert len(pipe.found("zanzibar")) == 61
