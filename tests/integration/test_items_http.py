"""Items over HTTP: by both clients, on the command line, with tokens of users, and with input that is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reverie import contract
from reverie.client import AsyncReverie, Reverie
from reverie.errors import Forbidden, NotFound, QuotaExceeded, Rejected
from reverie.items import GetOperation, PutOperation
from support.command_line import CommandLine
from support.http import running_server
from worker import app as worker_app
from worker.runtime import Runtime

OPERATORS = "o" * 32
ODD = "../a b/ü?#%2F\n"


@pytest.fixture
def here(make_runtime: Callable[..., Runtime]) -> Iterator[Runtime]:
    """A runtime that the tasks of this process get, too."""
    runtime = make_runtime()
    with worker_app.use_runtime(runtime):
        worker_app.app.loader.import_default_modules()
        yield runtime


@pytest.fixture
def reverie(
    here: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_BROKER_PREFIX", here.settings.broker_prefix)
    return CommandLine(
        monkeypatch, capsys, "--data", str(here.settings.data), "--agent", "ana", "--broker", here.settings.broker_url
    )


def test_items_over_http(ana: Reverie) -> None:
    """Given a workspace in which nothing is stored, then reads find nothing; and what is put is read back exactly."""
    assert (ana.items.namespaces(), ana.items.search(query="x").items, ana.items.sweep()) == ([], [], 0)
    assert ana.items.delete([ODD], "k") is False
    assert ana.items.batch([GetOperation(namespace=["n"], key="k")])[0].item is None
    with pytest.raises(NotFound, match="no item 'k'"):
        ana.items.get([ODD], "k")
    value = {"b": 1.0, "a": ["é\u0000", None, {"x": True}]}
    stored = ana.items.put([ODD, "*"], ODD, value, ttl_seconds=60)
    assert ana.items.get([ODD, "*"], ODD) == stored
    assert (stored.value, stored.expires_at is not None) == (value, True)
    assert [item.key for item in ana.items.search([ODD], filter={"b": {"$lte": 1}})] == [ODD]
    assert ana.items.namespaces(suffix=["*"]) == [[ODD, "*"]]
    assert ana.items.delete([ODD, "*"], ODD) is True


def test_the_asynchronous_client_has_the_same_calls(url: str) -> None:
    """Given the asynchronous client, then its calls take and return the same."""

    async def use() -> None:
        async with AsyncReverie("ana", url=url) as ana:
            stored = await ana.items.put(("n",), "k", {"text": "lantern"}, user="kate")
            assert await ana.items.get(("n",), "k", user="kate") == stored
            found = await ana.items.search(("n",), query="lantern", user="kate")
            assert [item.score for item in found] == [pytest.approx(1)]
            await ana.items.batch([PutOperation(namespace=["n"], key="k")], user="kate")
            assert (await ana.items.search(user="kate")).items == []

    asyncio.run(use())


def test_a_token_of_one_user_reaches_no_items_of_others(here: Runtime, ana: Reverie) -> None:
    """Given items of two users and of nobody, then a token of one reads, lists and deletes that one's alone."""
    for user in ("kate", "luis", None):
        ana.items.put(["n"], "k", {"of": str(user)}, user=user)
    kates = ana.admin.tokens.create(workspace="default", agents=["ana"], user="kate", scopes=["read", "write"]).token
    reading = ana.admin.tokens.create(workspace="default", agents=["ana"], scopes=["read"]).token
    with running_server(here, token=OPERATORS) as url, Reverie("ana", url=url, token=kates) as kate:
        assert kate.items.get(["n"], "k").value == {"of": "kate"}
        assert [item.value for item in kate.items.search()] == [{"of": "kate"}]
        with pytest.raises(Forbidden):
            kate.items.get(["n"], "k", user="luis")
        assert kate.items.delete(["n"], "k")
        assert kate.items.search().items == []
    with running_server(here, token=OPERATORS) as url, Reverie("ana", url=url, token=reading) as reader:
        assert reader.items.get(["n"], "k").value == {"of": "None"}
        with pytest.raises(Forbidden):
            reader.items.put(["n"], "k", {})
    assert ana.items.get(["n"], "k", user="luis").value == {"of": "luis"}


def test_a_workspace_that_is_full_takes_no_more(ana: Reverie) -> None:
    """Given a quota of bytes, when an item would exceed it, then it is refused and nothing is stored."""
    ana.items.put(["n"], "k", {"text": "x" * 100})
    ana.admin.quotas.set("workspace", "default", bytes=2_000)
    with pytest.raises(QuotaExceeded):
        ana.items.put(["n"], "big", {"text": "x" * 4_000})
    assert [item.key for item in ana.items.search()] == ["k"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "/v1/items", {"namespace": ["n"], "key": "k"}, "value"),
        ("PUT", "/v1/items", {"namespace": ["n"], "key": "k", "value": [1]}, "value"),
        ("PUT", "/v1/items", {"namespace": "n", "key": "k", "value": {}}, "namespace"),
        ("PUT", "/v1/items", {"namespace": ["n"], "key": 7, "value": {}}, "key"),
        ("PUT", "/v1/items", {"namespace": ["n"], "key": "k", "value": {}, "ttl_seconds": -1}, "ttl_seconds"),
        ("GET", "/v1/items?key=k", None, "namespace"),
        ("GET", "/v1/items?namespace=n&key=k&expired=1", None, "expired"),
        ("POST", "/v1/items/search", {"limit": 0}, "limit"),
        ("POST", "/v1/items/search", {"filter": {"a": {"$in": []}}}, "filter"),
        ("POST", "/v1/items/batch", {"operations": [{"operation": "drop"}]}, "operations[0].operation"),
        (
            "POST",
            "/v1/items/batch",
            {"operations": [{"operation": "get", "namespace": [], "key": "k"}]},
            "operations[0]",
        ),
        ("GET", "/v1/items/namespaces?max_depth=0", None, "max_depth"),
    ],
)
def test_wrong_input_names_the_field(url: str, method: str, path: str, body: Any, field: str) -> None:
    """Given invalid input, then the answer is a problem that names the field, and nothing is stored."""
    headers = {"X-Reverie-Agent": "ana"}
    with httpx2.Client(base_url=url, headers=headers) as http:
        response = http.request(method, path, json=body)
        assert (response.status_code, response.json()["field"]) == (422, field), response.text
        assert http.get("/v1/items/namespaces").json() == {"namespaces": []}


def test_items_put_while_the_embedder_was_away_are_embedded_by_a_task(here: Runtime, ana: Reverie) -> None:
    """Given items without vectors, when the task runs twice, then they are embedded once."""
    task = worker_app.app.tasks[contract.EMBED_ITEMS]
    books = [" ".join(f"This is page {page} of book {book}." for page in range(500)) for book in range(6)]
    ana.items.batch([PutOperation(namespace=["n"], key=book[-2:], value={"text": book}) for book in books])
    assert ana.items.search(query="page").degraded
    assert task.body(workspace="default")["items"] > 0
    assert task.body(workspace="default") == {"items": 0}
    assert not ana.items.search(query="page").degraded


def test_the_command_line_of_items(reverie: CommandLine, tmp_path: Path) -> None:
    """Given the commands, then items are put, read, found, listed and deleted, and a file is loaded line by line."""
    assert reverie("items", "put", "users.kate", "diet", '{"text": "oat milk"}').out == "diet is stored.\n"
    assert reverie("items", "get", "users.kate", "diet").json == {"text": "oat milk"}
    assert reverie("items", "get", '["users","kate"]', "diet", "--json").json["namespace"] == ["users", "kate"]
    assert reverie("items", "search", "users", "oat milk", "--json").json[0]["score"] == pytest.approx(1)
    assert reverie("items", "search", "--filter", '{"text": "none"}').out.startswith("Agent ana has no such items")
    file = tmp_path / "items.jsonl"
    file.write_text("".join(json.dumps({"id": number, "n": number}) + "\n" for number in range(150)))
    assert reverie("items", "load", "numbers", str(file)).out == "150 items stored.\n"
    assert reverie("items", "get", "numbers", "149").json == {"id": 149, "n": 149}
    assert reverie("items", "namespaces").out.split() == ["namespace", "numbers", "users.kate"]
    assert reverie("items", "delete", "users.kate", "diet", "--yes").code == 0
    assert reverie("items", "sweep").out == "0 expired items removed.\n"
    missing = reverie("items", "get", "users.kate", "diet")
    assert (missing.code, "no item 'diet'" in missing.err) == (1, True)
    twice = tmp_path / "twice.jsonl"
    (deep := tmp_path / "deep.jsonl").write_text("[" * 5_000)
    twice.write_text('{"id": 1}\n{"id": 2, "b": 1, "b": 2}\n')
    for wrong, said in (
        (("put", "n", "k", "plain"), "is not JSON"),
        (("put", "n", "k", '{"a": {"b": 1, "b": 2}}'), "has the key 'b' twice"),
        (("load", "n", str(twice)), "line 2 has the key 'b' twice"),
        (("put", "[1", "k", "{}"), "is not JSON"),
        (("search", "[" * 5_000), "is not JSON"),
        (("load", "n", str(deep)), "line 1 is not JSON"),
        (("put", "n", "k", "[]"), "value"),
        (("load", "n", str(file), "--key", "name"), "line 1 is no JSON object with a field 'name'"),
    ):
        ended = reverie("items", *wrong)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    unreadable = reverie("items", "load", "n", str(tmp_path / "none"))
    assert (unreadable.code, "cannot be read" in unreadable.err) == (1, True)


def test_an_item_of_a_workspace_that_was_deleted_is_gone(ana: Reverie) -> None:
    """Given an item, when its workspace is deleted, then it is gone, and a new one begins empty."""
    ana.items.put(["n"], "k", {"v": 1})
    assert ana.admin.workspaces.delete()
    with pytest.raises(NotFound):
        ana.items.get(["n"], "k")
    with pytest.raises(Rejected):
        ana.items.put([], "k", {"v": 1})
