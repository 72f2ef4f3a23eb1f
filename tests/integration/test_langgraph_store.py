"""LangGraph's store on a real server: its own semantics, both stores, own embedders, time to live, and a graph."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

# All other code can be worked on without it.
pytest.importorskip("langgraph.store.base", reason="langgraph is not installed: the extra `dev` has it")

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)

from reverie import Reverie, Unavailable
from reverie.frameworks.langgraph import AsyncReverieStore, ReverieStore
from support.agents import until
from support.http import running_server
from support.ports import free_port
from worker.runtime import Runtime

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here(make_runtime: Callable[..., Runtime]) -> Runtime:
    """The runtime of the server."""
    return make_runtime()


@pytest.fixture
def store(url: str) -> Iterator[ReverieStore]:
    """A store of the agent ana."""
    with ReverieStore("ana", url=url) as store:
        yield store


def letters(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts by how often each letter is in them."""
    return [[1.0, *(float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz")] for text in texts]


def test_values_are_read_back_exactly_and_at_once(store: ReverieStore) -> None:
    """Given a value, when put, read, put again and deleted, then each read sees the last write."""
    namespace, value = ("users", "kate"), {"likes": ["oats", {"milk": 1.5}], "none": None}
    store.put(namespace, "diet", value)
    found = store.get(namespace, "diet")
    assert isinstance(found, Item)
    assert (found.value, found.namespace, found.key) == (value, namespace, "diet")
    store.put(namespace, "diet", {"new": True})
    again = store.get(namespace, "diet")
    assert again
    assert (again.value, again.created_at, again.updated_at > found.updated_at) == (
        {"new": True},
        found.created_at,
        True,
    )
    store.delete(namespace, "diet")
    assert store.get(namespace, "diet") is None


def test_a_batch_is_in_order_and_reads_before_it_writes(store: ReverieStore) -> None:
    """Given mixed operations, then results are in order, reads see what was there, and the last put counts."""
    store.put(("t", "a"), "k1", {"data": 1})
    results = store.batch(
        [
            PutOp(("t", "a"), "k1", {"data": 2}),
            GetOp(("t", "a"), "k1"),
            SearchOp(("t",), filter={"data": 1}),
            ListNamespacesOp(),
            PutOp(("t", "b"), "k2", {"data": 3}),
            PutOp(("t", "b"), "k2", {"data": 4}),
            GetOp(("t",), "none"),
        ]
    )
    assert (results[0], results[4], results[5], results[6]) == (None, None, None, None)
    assert isinstance(results[1], Item)
    assert results[1].value == {"data": 1}
    assert isinstance(results[2], list)
    assert [type(item) for item in results[2]] == [SearchItem]
    assert results[3] == [("t", "a")]
    assert [item.value for item in store.search(("t",))] == [{"data": 4}, {"data": 2}]


def test_many_operations_are_more_than_one_request_and_keep_their_order(store: ReverieStore) -> None:
    """Given more operations than a request takes, and more bytes, then all are carried out, reads before writes."""
    puts = [PutOp(("n",), f"k{number}", {"n": number}, index=False) for number in range(600)]
    results = store.batch(
        [*puts, GetOp(("n",), "k0"), *(PutOp(("b",), f"{n}", {"t": "x" * 500_000}, False) for n in range(8))]
    )
    assert results[600] is None
    assert len(store.search(("n",), limit=1_000)) == 600
    assert len(store.search(("b",))) == 8


def test_names_are_those_that_langgraph_allows(store: ReverieStore) -> None:
    """Given a label with a full stop or an empty one, then LangGraph's error is raised, also past its methods."""
    for namespace in ((), ("a.b",), ("a", ""), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {})
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a.b",), "k", {})])
    store.batch([PutOp(("langgraph", "x"), "k", {"v": 1})])
    assert store.get(("langgraph", "x"), "k")


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({"price": {"$lt": float("inf")}}, 3),
    ({"price": {"$gt": float("-inf")}}, 3),
    ({"price": {"$eq": float("nan")}}, 0),
    ({"price": float("nan")}, 0),
    ({"price": {"$lt": 10**100}}, 3),
    ({"price": {"$gte": 20, "$ne": 30}}, 1),
    ({"user.level": "high"}, 1),
    ({"name": "O'Brien' OR '1'='1"}, 0),
    ({"name": "public\x00"}, 0),
]


@pytest.mark.parametrize(("conditions", "number"), FILTERS)
def test_filters_take_what_langgraph_takes(store: ReverieStore, conditions: dict[str, Any], number: int) -> None:
    """Given infinity, NaN, very large numbers, dotted names and quotes, then a filter is safe and right."""
    for price in (10, 20, 30):
        store.put(
            ("n",), str(price), {"price": price, "name": "public", "user": {"level": "high" if price > 20 else ""}}
        )
    assert len(store.search(("n",), filter=conditions)) == number


def test_a_filter_that_langgraph_refuses_is_a_value_error(store: ReverieStore) -> None:
    """Given a name with other characters, an unknown operator, or an unknown match, then it is a `ValueError`."""
    with pytest.raises(ValueError, match="Invalid filter key"):
        store.search(("n",), filter={"a') = 1 OR ('1'='1": 1})
    with pytest.raises(ValueError, match=r"Unsupported operator: \$in"):
        store.search(("n",), filter={"a": {"$in": [1]}})
    with pytest.raises(ValueError, match="unknown match type"):
        store.batch([ListNamespacesOp((MatchCondition("infix", ("a",)),))])  # type: ignore[arg-type]


def test_namespaces_are_listed_by_prefix_suffix_and_depth(store: ReverieStore) -> None:
    """Given nested namespaces, then they are listed as LangGraph lists them."""
    for name in (("a", "b", "c"), ("a", "b", "d", "e"), ("a", "x", "c"), ("b", "c")):
        store.put(name, "k", {})
    assert store.list_namespaces(prefix=("a", "b")) == [("a", "b", "c"), ("a", "b", "d", "e")]
    assert store.list_namespaces(suffix=("*", "c"), max_depth=2) == [("a", "b"), ("a", "x"), ("b", "c")]
    assert store.list_namespaces(prefix=("a", "*", "c"), limit=1, offset=1) == [("a", "x", "c")]
    assert store.list_namespaces(limit=0) == store.search((), limit=0) == []


def test_the_server_embeds_values_unless_told_otherwise(url: str) -> None:
    """Given no embedder of the caller, then a query is compared by the server; an index limits it to fields."""
    with ReverieStore("ana", url=url, index={"fields": ["text"]}) as store:  # type: ignore[typeddict-item]
        store.put(("n",), "a", {"text": "oat milk", "other": "lantern"})
        store.put(("n",), "b", {"text": "plums"})
        store.put(("n",), "c", {"text": "oat milk"}, index=False)
        store.put(("n",), "d", {"text": "plums", "other": "lantern"}, index=["other"])
        assert [item.key for item in store.search(("n",), query="oat milk")][::3] == ["a", "c"]
        found = store.search(("n",), query="lantern", limit=1)[0]
        assert (found.key, found.score) == ("d", pytest.approx(1))
    with ReverieStore("bob", url=url, index=False) as plain:
        plain.put(("n",), "a", {"text": "oat milk"})
        assert [item.score for item in plain.search(("n",), query="oat milk")] == [None]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_embedder_of_the_caller_makes_the_vectors(url: str, is_async: bool) -> None:
    """Given an embedding function, blocking or not, then it embeds fields and queries, and its scores are cosines."""

    async def letters_later(texts: Sequence[str]) -> list[list[float]]:
        return letters(texts)

    index = {"dims": 27, "embed": letters_later if is_async else letters, "fields": ["a", "b[*]"]}

    async def use() -> None:
        async with AsyncReverieStore("ana", url=url, index=index) as store:  # type: ignore[arg-type]
            await store.aput(("n",), "one", {"a": "zzz", "b": ["xxx", "yyy"]})
            await store.aput(("n",), "two", {"a": "kkk"})
            await store.aput(("n",), "without", {"c": "xxx"})
            found = await store.asearch(("n",), query="yyy")
            assert [(item.key, item.score is None) for item in found] == [
                ("one", False),
                ("two", False),
                ("without", True),
            ]
            assert found[0].score == pytest.approx(1)

    asyncio.run(use())


def test_what_is_awaited_at_once_is_one_request_and_blocking_calls_are_refused(url: str) -> None:
    """Given many calls at once, then they are batched; blocking ones within the loop are refused, not in a thread."""

    async def use() -> None:
        async with AsyncReverieStore("ana", url=url) as store:
            await store.setup()
            await asyncio.gather(*(store.aput(("n",), f"k{n}", {"n": n}, index=False) for n in range(700)))
            found = await asyncio.gather(*(store.aget(("n",), f"k{n}") for n in range(700)))
            assert [item.value["n"] for item in found if item] == list(range(700))
            for call in (
                lambda: store.get(("n",), "k0"),
                lambda: store.batch([GetOp(("n",), "k0")]),
                lambda: store.put(("n",), "k0", {}),
            ):
                with pytest.raises(asyncio.InvalidStateError):
                    call()
            item = await asyncio.to_thread(store.get, ("n",), "k0")
            assert item
            assert item.value == {"n": 0}

    asyncio.run(use())


def test_time_to_live_follows_the_configuration(make_runtime: Callable[..., Runtime]) -> None:
    """Given a default and own times to live, then items end when these do, a read prolongs, and a sweep removes."""
    seconds = 0

    def clock() -> int:
        return 1_800_000_000_000_000 + seconds * 1_000_000

    with running_server(make_runtime(clock=clock)) as url:
        ttl = {"default_ttl": 1.0, "refresh_on_read": True, "omit_expired": True}
        with ReverieStore("ana", url=url, ttl=ttl) as store:  # type: ignore[arg-type]
            store.put(("n",), "default", {})
            store.put(("n",), "own", {}, ttl=10)
            store.put(("n",), "never", {}, ttl=None)
            store.put(("n",), "unread", {})
            seconds = 50
            assert store.get(("n",), "default")
            assert store.get(("n",), "unread", refresh_ttl=False)
            seconds = 70
            assert store.get(("n",), "unread") is None
            assert {item.key for item in store.search(("n",), refresh_ttl=False)} == {"default", "own", "never"}
            assert store.sweep_ttl() == 1
            seconds = 700
            assert {item.key for item in store.search(("n",))} == {"never"}
        # Without `omit_expired`, as in LangGraph's own databases, an item is there until it is swept.
        with ReverieStore("ana", url=url, ttl={"default_ttl": 1.0}) as shows:
            assert len(shows.search(("n",))) == 3
            assert shows.sweep_ttl() == 2
            assert len(shows.search(("n",))) == 1


def test_the_sweeper_removes_what_has_expired_until_it_is_stopped(url: str, ana: Reverie) -> None:
    """Given a sweeper in a thread or a task, then expired items go by themselves; without a configuration none runs."""
    ttl = {"default_ttl": 0.0001, "sweep_interval_minutes": 0.0005}

    def left() -> int:
        return len(ana.items.search(expired=True))

    with ReverieStore("ana", url=url, ttl=ttl) as store:  # type: ignore[arg-type]
        store.put(("n",), "k", {})
        stopped = store.start_ttl_sweeper()
        until(lambda: left() == 0, "the sweeper removed nothing")
        assert store.stop_ttl_sweeper()
        assert stopped.done()
        assert threading.active_count() < 100

    async def use() -> None:
        async with AsyncReverieStore("ana", url=url, ttl=ttl) as later:  # type: ignore[arg-type]
            await later.aput(("n",), "k", {})
            await later.start_ttl_sweeper()
            await asyncio.to_thread(until, lambda: left() == 0, "the sweeper removed nothing")
            assert await later.stop_ttl_sweeper()

    asyncio.run(use())
    with ReverieStore("ana", url=url) as plain:
        assert plain.start_ttl_sweeper().done()


def test_each_user_of_a_store_has_items_of_their_own(url: str, ana: Reverie) -> None:
    """Given stores of two users and of nobody, then none reads another's; a given client stays open."""
    for user in ("kate", "luis", None):
        ReverieStore(client=ana, user=user).put(("n",), "k", {"of": str(user)})
    for user in ("kate", "luis", None):
        with ReverieStore("ana", url=url, user=user) as store:
            assert [item.value for item in store.search(())] == [{"of": str(user)}]
    with pytest.raises(TypeError, match="either a client or these"):
        ReverieStore("bob", client=ana)
    ana.items.namespaces()


def test_a_search_that_compares_nothing_is_logged_once(
    make_runtime: Callable[..., Runtime], caplog: pytest.LogCaptureFixture
) -> None:
    """Given a server without an embedder, when searched again and again, then the log says once why scores are
    missing."""
    with running_server(make_runtime(embedding_provider="none")) as url, ReverieStore("ana", url=url) as store:
        store.put(("n",), "k", {"text": "oat milk"})
        for _ in range(3):
            assert [item.score for item in store.search(("n",), query="milk")] == [None]
    said = [record.getMessage() for record in caplog.records if record.name == "reverie.frameworks.langgraph"]
    assert said == ["search of items: not searched by meaning: no embedder is configured"]


def test_a_server_that_is_down_is_said_to_be(tmp_path: Path) -> None:
    """Given no server, then every call says how to start one."""
    with ReverieStore("ana", url=f"http://127.0.0.1:{free_port()}") as store:
        for call in (store.setup, lambda: store.put(("n",), "k", {}), lambda: store.get(("n",), "k")):
            with pytest.raises(Unavailable, match="reverie up"):
                call()


def test_the_example_runs_as_it_is_and_remembers(url: str) -> None:
    """Given a running server, when the example is run twice, then it knows what it was told, of each user apart."""
    environment = {**os.environ, "REVERIE_URL": url}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "langgraph_agent.py")],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        kates, luiss = done.stdout.split("kate, second thread")[1].split("luis, another thread")
        assert "I moved to Lisbon in May" in kates
        assert "I know nothing about that yet." in luiss


def test_the_example_says_when_there_is_no_server() -> None:
    """Given no server, then the example ends with one line that says what to do."""
    environment = {**os.environ, "REVERIE_URL": f"http://127.0.0.1:{free_port()}"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "langgraph_agent.py")],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, "reverie up" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
