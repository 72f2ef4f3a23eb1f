"""Forty workspaces on one process that may keep few of them open: nothing is read twice that has not changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.idle_stores import IdleStores, run_where_changed
from memory.jobs import ORDINARY_RUN
from memory.pipeline.recovery import StageSweep
from retrieval.index import cache
from retrieval.index.cache import AgentIndexes
from reverie.clock import now_micros
from storage.pipeline.work import STAGES
from storage.stores import Stores

COUNT = 40
HOUR = 3_600 * 1_000_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path, connections=10)
    for number in range(COUNT):
        with stores.workspace(f"w{number:02d}").writing() as tx:
            tx.for_agent("ana").sessions.ensure("s", now=1)
    yield stores
    stores.close()


def test_indexes_stay_while_their_stores_are_closed(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more workspaces than may be open, when all are searched in turn again, then no index is made again."""
    indexes, made = AgentIndexes(), list[object]()
    real = cache.AgentIndex

    def counted(*arguments: object) -> object:
        made.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cache, "AgentIndex", counted)
    for _ in range(2):
        for name in stores.names():
            store = stores.workspace(name)
            with store.reading() as tx:
                assert indexes.snapshot(store, tx, "ana") is not None
    assert len(made) == COUNT
    assert len(stores._open.names()) <= 10
    with stores.workspace("w00").writing() as tx:
        tx.for_agent("ana").sessions.ensure("t", now=1)
    stores.delete_workspace("w01")
    store = stores.workspace("w01")
    with store.reading() as tx:
        indexes.snapshot(store, tx, "ana")
    assert len(made) == COUNT + 1, "a workspace that was deleted and begun again has another index"


def test_idle_workspaces_are_neither_opened_nor_written(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given workspaces without activity, then hourly jobs and sweeps of a day open none and change no file."""
    idle, sweep = IdleStores(), StageSweep(STAGES, IdleStores())
    started = now_micros()
    ran: list[str] = []

    def hour(number: int) -> None:
        now = started + number * HOUR
        for job in ("prune", "dream"):  # each writes its lease, which the other must not take for a change
            run_where_changed(
                stores, job, lambda run: ran.append(run.store.name), now=now, idle_stores=idle,
                next_at=lambda _: float("inf"), options=ORDINARY_RUN,
            )  # fmt: skip
        sweep.run(stores, now=now, notify=lambda *_: pytest.fail("nothing is due"))

    for number in (1, 2, 3):
        hour(number)
    assert {name for name in ran if name != "@account"} == set(stores.names())
    stamps = {name: stores.stamp(name) for name in stores.names()}
    ran.clear()
    monkeypatch.setattr(stores._open, "get", lambda name, *_, **__: pytest.fail(f"{name} is opened"))
    for number in range(4, 24):
        hour(number)
    assert [name for name in ran if name != "@account"] == []
    assert {name: stores.stamp(name) for name in stores.names()} == stamps
