"""The audit log: who did what, appended to and never changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from memory.trust.tokens import OPERATOR, Principal, TokenChecker
from memory.upkeep.maintenance import optimize_stores
from reverie.clock import to_micros
from reverie.errors import ReverieError, StoreUnavailable
from server.authentication import Ledger
from storage.stores import Stores
from storage.trust.audit import AuditEntry, AuditFilter, AuditLog
from storage.trust.quotas import LOCAL_TENANT


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path)
    yield made
    made.close()


@pytest.fixture
def log(stores: Stores) -> AuditLog:
    return stores.audit()


def entry(at: int, actor: str = "ana", **fields: str) -> AuditEntry:
    return AuditEntry(at=at, actor=actor, action="memory.forgotten", target="m-1", **fields)  # type: ignore[arg-type]


def test_entries_are_listed_newest_first_and_by_what_they_are_about(log: AuditLog) -> None:
    """Given three entries, then all are listed, and those of an actor, a workspace or a time alone on request."""
    log.record(entry(1), entry(2, "kate", workspace="w"), entry(3, agent="a", trace="t", origin="10.0.0.1"))
    listed = log.entries(AuditFilter(), limit=10)
    assert [to_micros(one.at) for one in listed] == [3, 2, 1]
    assert (listed[0].agent, listed[0].trace, listed[0].origin, listed[0].outcome) == ("a", "t", "10.0.0.1", "done")
    assert [to_micros(one.at) for one in log.entries(AuditFilter(actors=["kate"]), limit=10)] == [2]
    assert [to_micros(one.at) for one in log.entries(AuditFilter(workspace="w"), limit=10)] == [2]
    assert [to_micros(one.at) for one in log.entries(AuditFilter(since=2), limit=10)] == [3, 2]
    assert [to_micros(one.at) for one in log.entries(AuditFilter(), limit=1, offset=1)] == [2]


@pytest.mark.parametrize(
    "change", ["UPDATE audit_log SET actor = 'nobody'", "DELETE FROM audit_log", "DELETE FROM audit_log WHERE at < 2"]
)
def test_the_database_refuses_changes_of_entries(stores: Stores, log: AuditLog, change: str) -> None:
    """Given entries, when they are updated or deleted, then SQLite refuses and they are as they were."""
    log.record(entry(1), entry(2))
    with pytest.raises(ReverieError) as refused, stores.account().atomic() as connection:
        connection.execute(text(change))
    assert "append-only" in str(refused.value.__cause__)
    assert len(log.entries(AuditFilter(actors=["ana"]), limit=10)) == 2


def test_retention_removes_what_is_older_and_nothing_else(stores: Stores, log: AuditLog) -> None:
    """Given old and new entries, when the old ones are removed, then the new ones stay and stay protected."""
    log.record(entry(1), entry(2), entry(3))
    assert log.remove_before(3) == 2
    assert [to_micros(one.at) for one in log.entries(AuditFilter(), limit=10)] == [3]
    with pytest.raises(ReverieError) as refused, stores.account().atomic() as connection:
        connection.execute(text("DELETE FROM audit_log"))
    assert "append-only" in str(refused.value.__cause__)


def test_a_workspace_belongs_to_the_local_tenant_until_another_is_set(stores: Stores) -> None:
    """Given a workspace, then its tenant is the local one, and after it was set the one that was set."""
    tenants = stores.tenants()
    assert tenants.of("w") == LOCAL_TENANT
    tenants.set("w", "acme")
    tenants.set("v", "acme")
    assert (tenants.of("w"), tenants.of("x")) == ("acme", LOCAL_TENANT)
    assert tenants.workspaces("acme") == ["v", "w"]


def test_a_principal_reaches_only_what_it_is_bound_to() -> None:
    """Given the operator and a bound principal, then the first reaches everything, and the second its own."""
    bound = Principal("ana", workspace="w", agents=frozenset({"ana"}), scopes=frozenset({"read"}))
    assert OPERATOR.allows("operate")
    assert OPERATOR.reaches_workspace("w")
    assert OPERATOR.reaches_agent("ana")
    assert not OPERATOR.is_bound
    assert bound.is_bound
    assert bound.allows("read")
    assert not bound.allows("write")
    assert bound.reaches_workspace("w")
    assert not bound.reaches_workspace("v")
    assert bound.reaches_agent("ana")
    assert not bound.reaches_agent("bob")


def test_the_daily_upkeep_removes_old_entries(stores: Stores, log: AuditLog) -> None:
    """Given entries older than they are kept, when the upkeep runs, then only the newer ones are left."""
    day = 86_400_000_000
    log.record(entry(day), *(entry(9 * day) for _ in range(3)), entry(11 * day))
    optimize_stores(stores, now=lambda: 20 * day, recall_events_days=90, audit_log_days=10)
    assert [to_micros(one.at) for one in log.entries(AuditFilter(), limit=10)] == [11 * day]


def test_refusals_that_came_while_others_could_not_be_written_are_counted_with_them(
    stores: Stores, log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file that is locked, when equal refusals and many others come meanwhile, then all are counted later."""
    ledger = Ledger(stores, TokenChecker(stores, now=lambda: 0))
    monkeypatch.setattr(ledger, "start", lambda: None)

    def locked(_log: AuditLog, *_entries: AuditEntry) -> None:
        ledger.refused(entry(3))
        for number in range(300):
            ledger.refused(entry(4, f"stranger-{number}"))
        raise StoreUnavailable("another writer holds the lock")

    ledger.refused(entry(1))
    ledger.refused(entry(2))
    with monkeypatch.context() as patched:
        patched.setattr(AuditLog, "record", locked)
        ledger.flush()
    ledger.flush()
    written = log.entries(AuditFilter(), limit=1_000)
    assert sum(one.count for one in written) == 303
    assert [one.count for one in written if one.actor == "ana"] == [3]
    assert len(written) <= 102
