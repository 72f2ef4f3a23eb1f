"""Quotas: what refuses a call, what never is refused, and whose limits hold."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import cast

import pytest

from memory.trust.quotas import Quotas, quota_uses
from reverie.calls import build
from reverie.errors import Limited, QuotaExceeded, Rejected, error_of, problem_of
from reverie.pipeline.calls import IngestFile
from reverie.pipeline.submission import build_file
from reverie.trust.calls import Quota, SetQuotas
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def quotas_of(pipe: Pipeline, **defaults: int) -> Quotas:
    return Quotas(pipe.stores, lambda: pipe.inbox, defaults=cast("dict[Quota, int]", defaults))


def test_a_quota_counts_what_is_stored_and_what_waits(pipe: Pipeline) -> None:
    """Given room for three, then stored, waiting and held messages use it up; room given back is room again."""
    quotas = quotas_of(pipe, messages=3)
    pipe.say("stored")
    pipe.ingest()
    pipe.say("waits")
    with quotas.admitted(WORKSPACE, {"messages": 1}):
        with pytest.raises(QuotaExceeded, match=r"workspace ws holds 3 of at most 3 messages and files") as refused:
            quotas.admitted(WORKSPACE, {"messages": 1}).__enter__()
        assert (refused.value.field, refused.value.retry_after_seconds) == ("messages", 300)
    with quotas.admitted(WORKSPACE, {"messages": 1}) as release:
        release()
        with quotas.admitted(WORKSPACE, {"messages": 1}):
            pass
    pipe.ingest()
    with pytest.raises(QuotaExceeded, match="holds 2 of at most 3 messages and files, and 2 more do not fit"):
        quotas.admitted(WORKSPACE, {"messages": 2}).__enter__()
    pipe.forget()
    with quotas.admitted(WORKSPACE, {"messages": 3}):
        pass


def test_calls_at_once_do_not_share_the_last_place(pipe: Pipeline) -> None:
    """Given room for one and eight calls at once, then one of them passes."""
    quotas, start = quotas_of(pipe, memories=1), Barrier(8)

    def remember(number: int) -> bool:
        start.wait()
        try:
            with quotas.admitted(WORKSPACE, {"memories": 1}):
                Knowing(pipe.stores, workspace=WORKSPACE).remember(f"number {number}")
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(remember, range(8))).count(True) == 1


def test_the_nearest_limit_holds(pipe: Pipeline) -> None:
    """Given limits of settings, tenant and workspace, then that of the workspace holds; 0 lifts one, None inherits."""
    quotas, stores = quotas_of(pipe, messages=10, memories=5), pipe.stores
    stores.tenants().set(WORKSPACE, "acme")
    assert quotas.amounts_allowed(WORKSPACE) == {"messages": 10, "memories": 5}
    stores.quotas().set("tenant", "acme", {"messages": 20, "bytes": 100})
    stores.quotas().set("workspace", WORKSPACE, {"messages": 30, "memories": 0})
    assert quotas.amounts_allowed(WORKSPACE) == {"messages": 30, "bytes": 100}
    assert quotas.amounts_allowed("other") == {"messages": 10, "memories": 5}
    stores.quotas().set("workspace", WORKSPACE, {"messages": None})
    assert quotas.amounts_allowed(WORKSPACE) == {"messages": 20, "bytes": 100}


def test_the_account_tier_is_limited_for_each_tenant(pipe: Pipeline) -> None:
    """Given a tenant whose part of the account is full, then another tenant's is not."""
    quotas = quotas_of(pipe, memories=1)
    pipe.stores.tenants().set("acme", "acme")
    Knowing(pipe.stores, workspace="acme").remember("brief answers", tier="account", kind="preference")
    with pytest.raises(QuotaExceeded, match="the account tier of tenant acme holds 1 of at most 1 memories"):
        quotas.admitted("acme", {"memories": 1}, in_account=True).__enter__()
    for workspace, in_account in (("acme", False), ("home", True)):
        with quotas.admitted(workspace, {"memories": 1}, in_account=in_account):
            pass


def test_a_tenant_has_as_many_workspaces_as_it_may(pipe: Pipeline) -> None:
    """Given room for two workspaces, then a third is refused, also while one of the two is only on its way."""
    quotas = quotas_of(pipe, workspaces=2)
    assert pipe.store
    quotas.check_new_workspace("second")
    with pytest.raises(QuotaExceeded, match="tenant local holds 2 of at most 2 workspaces"):
        quotas.check_new_workspace("third", on_their_way=1)
    pipe.stores.tenants().set("third", "acme")
    quotas.check_new_workspace("third", on_their_way=1)


def test_the_broker_refuses_for_a_full_workspace_and_what_was_accepted_is_stored(pipe: Pipeline) -> None:
    """Given a producer with the broker, then a full workspace refuses its next message, and lost none before."""
    quotas = quotas_of(pipe, messages=3)
    pipe.say("one", "two")
    assert quotas.refresh(WORKSPACE) is False
    pipe.say("three", "four")
    assert quotas.refresh(WORKSPACE) is True
    with pytest.raises(QuotaExceeded, match="holds 4 of at most 3 messages and files") as refused:
        pipe.say("five")
    assert refused.value.field == "messages"
    pipe.ingest()
    assert pipe.contents() == ["one", "two", "three", "four"]
    pipe.forget()
    assert quotas.refresh_all() == {}
    pipe.say("six")
    assert pipe.waiting_in_inbox() == 1


def test_another_process_learns_of_a_raised_quota(pipe: Pipeline) -> None:
    """Given a worker that found a workspace full, when a server raises the quota, then the next sweep opens it."""
    worker, server = quotas_of(pipe), quotas_of(pipe)
    pipe.stores.quotas().set("workspace", WORKSPACE, {"messages": 1})
    pipe.say("one")
    pipe.ingest()
    assert worker.refresh_all() == {}
    with pytest.raises(QuotaExceeded):
        pipe.say("two")
    pipe.stores.quotas().set("workspace", WORKSPACE, {"messages": 5})
    assert server.refresh(WORKSPACE, refused=True) is False
    pipe.say("two")
    pipe.stores.quotas().set("workspace", WORKSPACE, {"messages": 2})
    worker.refresh_all()
    with pytest.raises(QuotaExceeded):
        pipe.say("three")


def test_what_was_accepted_before_is_put_back_whatever_the_quota(pipe: Pipeline) -> None:
    """Given a full workspace, when a backup's or dead letter's item is put back, then it is accepted."""
    pipe.say("one")
    pipe.ingest()
    quotas_of(pipe, messages=1).refresh(WORKSPACE)
    payload = build_file(IngestFile(source_uri="file:///a", content="text"), agent="ana", trace="t")
    with pytest.raises(QuotaExceeded):
        pipe.inbox.accept(WORKSPACE, [payload])
    assert pipe.inbox.accept(WORKSPACE, [payload], accepted_at=1)[0] == 1


def test_the_list_shows_use_limit_and_origin(pipe: Pipeline) -> None:
    """Given limits from two places, then each line has what is used, the limit, and where it comes from."""
    quotas = quotas_of(pipe, messages=10, workspaces=4)
    pipe.stores.quotas().set("workspace", WORKSPACE, {"memories": 7})
    pipe.say("one")
    pipe.ingest()
    found = quota_uses(pipe.stores, quotas, only=None, limit=50, offset=0)
    shown = {(one.holder, one.name, one.resource): (one.used, one.limit, one.set_for) for one in found}
    assert shown["tenant", "local", "workspaces"] == (1, 4, "")
    assert shown["workspace", WORKSPACE, "messages"] == (1, 10, "")
    assert shown["workspace", WORKSPACE, "memories"] == (0, 7, "workspace")
    assert shown["workspace", WORKSPACE, "schedules"] == (0, None, "")
    assert quota_uses(pipe.stores, quotas, only="none", limit=50, offset=0)[0].used == 0


def test_a_problem_says_that_waiting_does_not_help() -> None:
    """Given a full quota, then its problem is another one than that of a rate, and comes back as it went."""
    problem = problem_of(QuotaExceeded("full", field="messages", retry_after_seconds=300))
    assert (problem.type, problem.status) == ("urn:reverie:problem:quota-exceeded", 429)
    assert type(error_of(problem)) is QuotaExceeded
    assert type(error_of(problem_of(Limited("slow down", field="messages")))) is Limited


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"holder": "workspace", "workspaces": 3}, "workspaces"),
        ({"holder": "workspace"}, "messages"),
        ({"holder": "tenant", "messages": 3, "inherit": ["messages"]}, "inherit"),
        ({"holder": "tenant", "inherit": ["speed"]}, "inherit"),
        ({"holder": "user", "messages": 3}, "holder"),
        ({"holder": "tenant", "messages": -1}, "messages"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(given: dict[str, object], field: str) -> None:
    """Given a wrong holder, amount or resource, then the error names the argument."""
    with pytest.raises(Rejected) as refused:
        build(SetQuotas, {"name": "acme", **given})
    assert refused.value.field == field
