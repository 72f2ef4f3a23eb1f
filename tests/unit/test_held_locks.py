"""A transaction that holds the write lock of a store for long is noted with the task that made it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters.broker.shared_metrics import LONG_TRANSACTIONS
from storage import held_locks
from worker.runtime import Runtime


@pytest.mark.parametrize(("task", "label"), [("reverie.continue_erasures", "continue_erasures"), ("", "none")])
@pytest.mark.parametrize("fails", [False, True])
def test_a_long_transaction_is_counted_by_its_task(
    make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch, task: str, label: str, fails: bool
) -> None:
    """Given transactions of which all but one are short, when one is long, then it is counted, failed or not."""
    runtime = make_runtime()
    runtime.current_task = lambda: task
    store, account = runtime.stores.workspace("ws"), runtime.stores.account_store()
    for short in (store, account):
        with short.writing():
            pass
    for long in (store, account):
        monkeypatch.setattr(held_locks, "LONG_SECONDS", -1.0)
        try:
            with long.writing():
                if fails:
                    raise ValueError
        except ValueError:
            pass
        monkeypatch.setattr(held_locks, "LONG_SECONDS", 3_600.0)
    runtime.shared_metrics.flush()
    (counted,) = runtime.shared_metrics.read()[LONG_TRANSACTIONS]
    assert (counted.labels, counted.value) == ((label,), 2.0)


def test_the_wait_for_a_lock_is_no_time_for_which_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a clock, when a lock is waited for and held for a moment, then only the moment counts."""
    times = iter([100.0, 100.4, 200.0, 200.6])
    monkeypatch.setattr(held_locks.time, "monotonic", lambda: next(times))
    noted: list[float] = []
    for _ in range(2):
        with held_locks.holding_lock(noted.append) as taken:
            taken()
    assert noted == [pytest.approx(0.6)]
    with pytest.raises(TimeoutError), held_locks.holding_lock(noted.append):
        raise TimeoutError  # it was never taken
    assert len(noted) == 1
