"""Several processes on one file: opened at once, written at once, maintained meanwhile, and never locked."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from storage.stores import Stores
from storage.verify import verify
from support import store_work
from support.forks import FORKS, import_beforehand


def test_processes_that_open_new_files_at_once_all_can_use_them(tmp_path: Path) -> None:
    """Given four processes and 15 workspaces that do not exist, when all open and write each, then none fails."""
    import_beforehand()
    with FORKS.Manager() as manager, ProcessPoolExecutor(4, mp_context=FORKS) as pool:
        start = manager.Barrier(4)
        running = [pool.submit(store_work.open_all, str(tmp_path), 15, start) for _ in range(4)]
        assert [process.result(240) for process in running] == [[]] * 4
    stores = Stores(tmp_path)
    for number in range(15):
        with stores.workspace(f"w{number}").reading() as tx:
            assert tx.for_agent("ana").sessions.get("s").last_sequence == 4
            assert len(tx.index.generations()) == 1
        assert verify(stores.workspace(f"w{number}")).wrong == []
    stores.close()


def test_four_writers_and_the_maintenance_of_everything_meet_no_lock(tmp_path: Path) -> None:
    """Given 4 processes of 200 writes, stages, optimising and rebuilding at once, then no error and nothing lost."""
    stores = Stores(tmp_path)
    stores.workspace(store_work.WORKSPACE)
    import_beforehand()
    with FORKS.Manager() as manager, ProcessPoolExecutor(5, mp_context=FORKS) as pool:
        start, stop = manager.Barrier(5), manager.Event()
        maintenance = pool.submit(store_work.maintain, str(tmp_path), start, stop)
        writers = [
            pool.submit(store_work.write_many, str(tmp_path), agent, 200, start) for agent in ("a", "b", "c", "d")
        ]
        written = [writer.result(240) for writer in writers]
        stop.set()
        wrong, rounds = maintenance.result(240)
    assert written == [[]] * 4
    assert (wrong, rounds >= 2) == ([], True)

    store = stores.workspace(store_work.WORKSPACE)
    store_work.run_stages(store)
    verdict = verify(store)
    assert verdict.wrong == []
    assert (verdict.counts["messages"], verdict.counts["in_vector_index"]) == (800, 800)
    stores.close()
