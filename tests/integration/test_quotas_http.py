"""Quotas over HTTP, for workers, and for clients that have the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from memory.trust.tokens import OPERATOR, TokenRequest, create_token
from reverie import Reverie
from reverie.contract import SCOPES
from reverie.errors import Forbidden, QuotaExceeded
from server.authentication import Access
from server.services import Services
from support.http import running_server
from tasks.pipeline import ingest_messages, sweep_stages
from worker.app import use_runtime
from worker.runtime import Runtime

TOKEN = "operator-token-of-32-characters-x"
TURN = {"role": "user", "content": "I moved to Lisbon"}


def work(runtime: Runtime, task: Any, **arguments: Any) -> None:
    with use_runtime(runtime):
        task.body(**arguments)


def test_a_full_workspace_refuses_until_something_is_forgotten(make_runtime: Any) -> None:
    """Given room for two messages and a memory, then more is a problem of its own, for the operator, too."""
    runtime = make_runtime(quota_messages=2, quota_bytes=4_000)
    with running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url:
        with Reverie("ana", workspace="w", url=url, token=TOKEN) as ana:
            ana.admin.quotas.set("workspace", "w", memories=1)
            ana.ingest("s", [TURN, TURN])
            with pytest.raises(QuotaExceeded, match="2 of at most 2 messages and files") as refused:
                ana.ingest("s", TURN)
            assert refused.value.field == "messages"
            work(runtime, ingest_messages, workspace="w")
            kept = ana.remember("Kate takes oat milk")
            for more in (lambda: ana.remember("and sugar"), lambda: ana.facts.set("home", "city", "Porto")):
                with pytest.raises(QuotaExceeded, match="1 of at most 1 memories"):
                    more()
            with pytest.raises(QuotaExceeded, match="bytes of texts"):
                ana.scratchpads.write_key("s", "k", "x" * 4_000)
            ana.memories.update(kept.id, content="Kate takes almond milk")
            assert ana.forget(kept.id)
            assert ana.remember("and sugar").id
            assert ana.sessions.forget("s")
            assert len(ana.ingest("t", TURN).accepted) == 1
            uses = {(one.name, one.resource): (one.used, one.limit) for one in ana.admin.quotas.list(workspace="w")}
            assert uses["w", "memories"] == (1, 1)
            status = ana.status()
            assert next(one for one in status.workspaces if one.name == "w").full == ["memories"]
            assert status.quota_use["memories"] == 1.0
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Reverie-Agent": "ana", "X-Reverie-Workspace": "w"}
        raw = httpx2.post(f"{url}/v1/memories", json={"content": "one more"}, headers=headers)
        assert (raw.status_code, raw.headers["Retry-After"]) == (429, "300")
        assert raw.json()["type"] == "urn:reverie:problem:quota-exceeded"
        metrics = httpx2.get(f"{url}/metrics", headers=headers).text
        assert 'reverie_quota_use{quota="memories"} 1.0' in metrics
        assert 'reverie_stored{what="memories"} 1.0' in metrics


def test_a_client_with_the_broker_is_refused_by_it_and_the_server_makes_room(make_runtime: Any) -> None:
    """Given a full workspace, then the worker has the broker refuse; accepted messages are stored all the same."""
    runtime = make_runtime(quota_messages=2)
    with Reverie(
        "ana", workspace="w", broker=runtime.settings.broker_url, prefix=runtime.settings.broker_prefix
    ) as ana:
        assert len(ana.ingest("s", [TURN, TURN, TURN]).accepted) == 3
        work(runtime, ingest_messages, workspace="w")
        with runtime.store("w").reading() as tx:
            assert tx.connection.exec_driver_sql("SELECT count(*) FROM messages").scalar() == 3
        with pytest.raises(QuotaExceeded, match="3 of at most 2 messages and files"):
            ana.ingest("s", TURN)
        with (
            running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url,
            Reverie("ana", workspace="w", url=url, token=TOKEN) as operator,
        ):
            operator.sessions.forget("s")
            # The broker still refuses, from before; the server knows better.
            assert len(operator.ingest("t", TURN).accepted) == 1
        work(runtime, sweep_stages)
        assert len(ana.ingest("t", TURN).accepted) == 1


def test_a_tenant_makes_no_more_workspaces_than_it_may(make_runtime: Any) -> None:
    """Given one workspace for each tenant, then a second is refused, and one of another tenant is not."""
    runtime = make_runtime(quota_workspaces=1)
    request = TokenRequest("acme", (), None, SCOPES, name="acme")
    token = create_token(runtime.stores, request, by=OPERATOR, now=runtime.now()).text
    with running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url:

        def remember(workspace: str, token: str) -> str:
            with Reverie("ana", workspace=workspace, url=url, token=token) as client:
                return client.remember("Kate takes oat milk").id

        assert remember("first", TOKEN)
        with pytest.raises(QuotaExceeded, match="tenant local holds 1 of at most 1 workspaces"):
            remember("second", TOKEN)
        assert not runtime.stores.database_path("second").exists()
        assert remember("first", TOKEN)
        assert remember("acme", token)
        with Reverie("ana", workspace="acme", url=url, token=token) as client:
            assert {one.name for one in client.admin.quotas.list()} == {"acme"}
            assert client.admin.quotas.list(workspace="first") == []
            with pytest.raises(Forbidden):
                client.admin.quotas.set("workspace", "acme", memories=0)


def test_a_failed_call_does_not_take_away_the_workspace_of_one_that_was_accepted(runtime: Runtime) -> None:
    """Given two calls at once that create a workspace, when one fails, then the other's is still on its way."""
    services = Services(runtime)

    def fail(workspace: str, *accepted: str) -> None:
        with services.creating(workspace, creates=True):
            for another in accepted:
                with services.creating(another, creates=True):
                    pass
            raise ZeroDivisionError

    for workspace, accepted in (("new", ["new"]), ("other", [])):
        with pytest.raises(ZeroDivisionError):
            fail(workspace, *accepted)
        assert services.has_workspace(workspace) == bool(accepted)


def test_an_import_stops_where_a_quota_is_used_up(make_runtime: Any, tmp_path: Path) -> None:
    """Given an export of three memories and room for two, then nothing of its call is stored; with room, all is."""
    runtime = make_runtime()
    with (
        running_server(runtime, access=Access(tokens={"operator": TOKEN})) as url,
        Reverie("ana", workspace="w", url=url, token=TOKEN) as ana,
    ):
        for text in ("one", "two", "three"):
            ana.remember(text)
        ana.admin.export_file(tmp_path / "all.jsonl", workspace="w")
        for memory in ana.memories.list():
            ana.forget(memory.id)
        ana.admin.quotas.set("workspace", "w", memories=2)
        with pytest.raises(QuotaExceeded, match="and 3 more do not fit"):
            ana.admin.import_file(tmp_path / "all.jsonl", erased=True)
        assert list(ana.memories.list()) == []
        ana.admin.quotas.set("workspace", "w", memories=3)
        for _ in range(2):  # what is there already needs no room
            ana.admin.import_file(tmp_path / "all.jsonl", erased=True)
            assert len(ana.memories.list()) == 3
