"""Items: returned exactly as they were put, found by prefix, filter and meaning, until their time to live ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, EmbedderUnavailable, EmbeddingRefused, HashEmbedder
from memory.items.embedding import embed_waiting, pieces_to_embed, texts_at
from memory.items.items import ItemsOf, read_item
from memory.pipeline.dead_letters import replay
from memory.pipeline.recovery import StageSweep
from memory.stage import claim_batch
from memory.upkeep.maintenance import DEFAULT_KEEP, expire
from reverie.calls import validated
from reverie.errors import NotFound, Rejected
from reverie.items import (
    BatchItems,
    FoundItems,
    GetItem,
    GetOperation,
    ItemOperation,
    ListItemNamespaces,
    NamespacesOperation,
    PutItem,
    PutOperation,
    SearchItems,
    SearchOperation,
)
from storage.trust.quotas import stored_amounts, wrong_amounts
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline

NOW = 1_750_000_000_000_000
SECOND = 1_000_000
# For a busy machine, on which the usual quarter of a second may be over after one item.
ENOUGH_SECONDS = 60.0


class Away(HashEmbedder):
    """An embedder that does not answer until it is back, and refuses some texts for good."""

    is_away = True

    def embed(self, texts: Sequence[str]) -> NDArray[Any]:
        if self.is_away:
            raise EmbedderUnavailable("the embedder is away")
        if any("refused" in text for text in texts):
            raise EmbeddingRefused("never")
        return super().embed(texts)

    embed_query = HashEmbedder.embed_query


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def items(pipe: Pipeline) -> ItemsOf:
    return ItemsOf(pipe.store, "ana", None, pipe.embedder, NOW)


def put(items: ItemsOf, namespace: Sequence[str], key: str, value: dict[str, Any], **more: Any) -> None:
    items.put([validated(PutItem(namespace, key, value, **more))])


def search(items: ItemsOf, *namespace: str, **more: Any) -> FoundItems:
    return items.search(validated(SearchItems(namespace, **more)))


def keys(items: ItemsOf, *namespace: str, **more: Any) -> list[str]:
    return [item.key for item in search(items, *namespace, **more)]


def test_an_item_is_returned_as_it_was_put(items: ItemsOf) -> None:
    """Given a value with every kind of JSON, when read at once, then it is the same, and its order is kept."""
    value = {"z": 1, "a": [1.5, None, True, {"deep": "é\u0000\n"}], "number": 2**53 - 1, "": ""}
    put(items, ["users", "kate"], "diet", value)
    found = read_item(items, GetItem(["users", "kate"], "diet"))
    assert (found.value, list(found.value)) == (value, list(value))
    assert (found.namespace, found.key, found.expires_at) == (["users", "kate"], "diet", None)
    with pytest.raises(NotFound, match="no item 'other'"):
        read_item(items, GetItem(["users", "kate"], "other"))


def test_a_put_replaces_the_value_and_keeps_when_it_was_made(items: ItemsOf) -> None:
    """Given an item, when put again, then only the new value and its vectors are there."""
    put(items, ["n"], "k", {"text": "apples", "old": 1})
    put(replace(items, now=NOW + SECOND), ["n"], "k", {"text": "pears"})
    found = read_item(items, GetItem(["n"], "k"))
    assert (found.value, (found.updated_at - found.created_at).total_seconds()) == ({"text": "pears"}, 1.0)
    with items.store.reading() as tx:
        assert tx.connection.exec_driver_sql("SELECT count(*) FROM item_vectors").scalar() == 1


def test_items_of_users_agents_and_nobody_are_apart(items: ItemsOf) -> None:
    """Given the same namespace and key of several, then each reads, lists, searches and deletes its own alone."""
    owners = [items, replace(items, user="kate"), replace(items, user="luis"), replace(items, agent="bob")]
    for number, owner in enumerate(owners):
        put(owner, ["n"], "k", {"text": f"value {number}"})
    for number, owner in enumerate(owners):
        assert read_item(owner, GetItem(["n"], "k")).value == {"text": f"value {number}"}
        assert len(search(owner, query="value")) == len(search(owner)) == 1
        assert owner.namespaces(ListItemNamespaces()) == [["n"]]
    assert owners[1].delete(["n"], "k")
    assert [bool(owner.get([GetItem(["n"], "k")])[0]) for owner in owners] == [True, False, True, True]


def test_a_prefix_ends_where_a_label_ends(items: ItemsOf) -> None:
    """Given labels that begin alike or have special characters, then a prefix finds what is below it only."""
    names = [["foo"], ["foo", "child"], ["foobar"], ["FOO"], ['fo"o'], ["a%b"], ["a_b"], ["star*"], ["é", "\n"], ["["]]
    for name in names:
        put(items, name, "k", {"v": 1}, index=[])
    found = {tuple(name): [item.namespace for item in search(items, *name)] for name in names}
    assert found.pop(("foo",)) == [["foo", "child"], ["foo"]]
    assert all(below == [list(name)] for name, below in found.items())
    assert search(items, "fo").items == []
    assert len(search(items, limit=100)) == len(names)


def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(items: ItemsOf) -> None:
    """Given nested namespaces, then a star stands for one label, and shortened ones are listed once."""
    for name in (["a", "b", "c"], ["a", "b", "d", "e"], ["a", "x", "c"], ["b", "c"], ["*", "c"]):
        put(items, name, "k", {}, index=[])

    def listed(**more: Any) -> list[list[str]]:
        return items.namespaces(validated(ListItemNamespaces(**more)))

    assert listed(prefix=["a"]) == [["a", "b", "c"], ["a", "b", "d", "e"], ["a", "x", "c"]]
    assert listed(prefix=["a", "*", "c"]) == [["a", "b", "c"], ["a", "x", "c"]]
    assert listed(suffix=["*", "c"], max_depth=2) == [["*", "c"], ["a", "b"], ["a", "x"], ["b", "c"]]
    assert listed(prefix=["*", "*", "*", "*", "*"]) == []
    assert listed(limit=2, offset=1) == [["a", "b", "c"], ["a", "b", "d", "e"]]


FILTERS = [
    ({"kind": "note"}, "ab"),
    ({"kind": {"$ne": "note"}}, "c"),  # what has no kind is not different from it
    ({"year": {"$gte": 2020, "$lt": 2022}}, "a"),
    ({"year": {"$gt": "2020"}}, "b"),  # texts are compared with texts
    ({"at": {"$gt": "2024-01"}}, "b"),
    ({"user.age": 7}, "c"),
    ({"user": {"age": {"$lte": 7}}}, "c"),
    ({"dotted.name": 1}, "d"),
    ({"tags": ["x", "y"]}, "a"),
    ({"tags": ["y", "x"]}, ""),
    ({"missing": None}, "abcd"),
    ({"kind": {"$ne": None}}, "abc"),
    ({"on": True}, "b"),
    ({}, "abcd"),
]


@pytest.mark.parametrize(("conditions", "expected"), FILTERS)
@pytest.mark.parametrize("query", ["", "anything"])
def test_a_filter_selects_by_fields(items: ItemsOf, conditions: dict[str, Any], expected: str, query: str) -> None:
    """Given values, when searched with a filter, with or without a query, then those that fit are found."""
    put(items, ["n"], "a", {"kind": "note", "year": 2020, "tags": ["x", "y"]})
    put(items, ["n"], "b", {"kind": "note", "year": "2022", "at": "2024-05", "on": True})
    put(items, ["n"], "c", {"kind": "other", "user": {"age": 7}})
    put(items, ["n"], "d", {"dotted.name": 1})
    assert sorted(keys(items, "n", filter=conditions, query=query)) == list(expected)


def test_pages_of_a_filtered_search_are_complete_and_apart(items: ItemsOf) -> None:
    """Given every second item fits, when read page by page, then each fitting one is on one page."""
    for number in range(20):
        put(items, ["n"], f"k{number:02}", {"even": number % 2 == 0}, index=[])
    pages = [keys(items, "n", filter={"even": True}, limit=4, offset=offset) for offset in (0, 4, 8)]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert len({key for page in pages for key in page}) == 10


def test_a_query_ranks_by_meaning_and_puts_what_has_no_vector_last(items: ItemsOf) -> None:
    """Given items with and without an index, when searched with a query, then the most similar one is first."""
    put(items, ["n"], "near", {"text": "the lantern burns on odd Thursdays"})
    put(items, ["n"], "far", {"text": "plums and pears"})
    put(items, ["n"], "none", {"text": "the lantern burns on odd Thursdays"}, index=[])
    found = search(items, "n", query="the lantern burns on odd Thursdays")
    assert [item.key for item in found] == ["near", "far", "none"]
    assert found[0].score == pytest.approx(1)
    assert (found[0].score or 0) > (found[1].score or 0)
    assert (found[2].score, found.degraded) == (None, "")


def test_only_the_texts_at_the_paths_of_the_index_are_compared(items: ItemsOf) -> None:
    """Given paths into lists and objects, when searched, then their texts are found and others are not."""
    value = {"title": "harbour", "notes": [{"t": "lantern"}, {"t": "anchor"}], "hidden": "zebra"}
    put(items, ["n"], "k", value, index=["title", "notes[*].t"])
    assert search(items, "n", query="anchor")[0].score == pytest.approx(1)
    assert (search(items, "n", query="zebra")[0].score or 0) < 0.9


PATHS: list[tuple[str, list[str]]] = [
    ("$", ["a: 1\nb.c: x\nl: one\nl: two\nl.t: three\non: True"]),
    ("b", ["x"]),
    ("b.c", ["x"]),
    ("l[0]", ["one"]),
    ("l[-1].t", ["three"]),
    ("l[9]", []),
    ("l[x]", []),
    ("l[*]", ["one", "two", "three"]),
    ("l[*].t", ["three"]),
    ("{a, b.c,none}", ["1", "x"]),
    ("b.*", ["x"]),
    ("*", ["1", "x", "one\ntwo\nt: three", "True"]),
    ("none.deep", []),
    ("a.b", []),
]


@pytest.mark.parametrize(("path", "expected"), PATHS)
def test_a_path_leads_to_texts(path: str, expected: list[str]) -> None:
    """Given a value and a path, then its texts are found, and what is missing has none."""
    value = {"a": 1, "b": {"c": "x"}, "l": ["one", "two", {"t": "three"}], "none": None, "on": True}
    assert texts_at(value, path) == expected


def test_vectors_of_the_caller_are_compared_by_its_distance(items: ItemsOf) -> None:
    """Given vectors that were put along, then each distance ranks by them, and one of another length is refused."""
    for key, vector in {"a": [1.0, 0.0], "b": [2.0, 0.1], "c": [0.0, 1.0]}.items():
        put(items, ["n"], key, {"text": key}, vectors=[vector])
    for distance, order in {"cosine": "abc", "l2": "abc", "inner_product": "bac"}.items():
        assert "".join(keys(items, "n", query_vector=[1.0, 0.0], distance=distance)) == order
    with pytest.raises(Rejected, match=r"query_vector has 3 numbers; .* have vectors of 2"):
        search(items, "n", query_vector=[1.0, 0.0, 0.0])


def test_an_item_expires_is_refreshed_and_swept(items: ItemsOf, pipe: Pipeline) -> None:
    """Given a time to live, when it ends, then the item is hidden, and a sweep removes it; a read may prolong it."""
    put(items, ["n"], "short", {"v": 1}, ttl_seconds=10)
    put(items, ["n"], "read", {"v": 1}, ttl_seconds=10)
    put(items, ["n"], "long", {"v": 1})
    at_nine = replace(items, now=NOW + 9 * SECOND)
    assert at_nine.get([GetItem(["n"], "read", refresh_ttl=True)])[0]
    later = replace(items, now=NOW + 15 * SECOND)
    assert later.get([GetItem(["n"], "short")]) == [None]
    assert sorted(keys(later, "n")) == ["long", "read"]
    assert sorted(keys(later, "n", expired=True)) == ["long", "read", "short"]
    assert later.get([GetItem(["n"], "short", expired=True)])[0]
    assert (later.sweep(), later.sweep()) == (1, 0)
    assert expire(pipe.store, DEFAULT_KEEP, now=NOW + 60 * SECOND) == {"expired_items_dropped": 1}
    assert keys(replace(items, now=NOW + 60 * SECOND), "n", expired=True) == ["long"]


def test_a_batch_reads_before_it_writes_and_the_last_write_counts(items: ItemsOf) -> None:
    """Given reads, puts and a deletion in one batch, then reads see what was there, and outcomes are in order."""
    put(items, ["n"], "old", {"v": 1})
    put(items, ["n"], "gone", {"v": 1})
    operations: list[ItemOperation] = [
        PutOperation(namespace=["n"], key="new", value={"v": 1}),
        GetOperation(namespace=["n"], key="new"),
        PutOperation(namespace=["n"], key="gone"),
        SearchOperation(namespace=["n"]),
        PutOperation(namespace=["n"], key="new", value={"v": 2}),
        NamespacesOperation(),
        GetOperation(namespace=["n"], key="old"),
    ]
    outcomes, waiting = items.batch(validated(BatchItems(operations)).operations)
    assert not waiting
    assert (outcomes[1].item, len(outcomes[3].found or ()), outcomes[5].namespaces) == (None, 2, [["n"]])
    assert outcomes[6].item
    assert outcomes[6].item.value == {"v": 1}
    assert sorted(keys(items, "n")) == ["new", "old"]
    assert read_item(items, GetItem(["n"], "new")).value == {"v": 2}


def test_items_that_wait_are_embedded_in_turns(items: ItemsOf, pipe: Pipeline) -> None:
    """Given many items that wait, when the time of a call is up, then the rest is left for the next one."""
    waiting = replace(items, embedder=Away())
    for number in range(3):
        put(waiting, ["n"], str(number), {"text": f"lantern {number}"})
    calls = [embed_waiting(pipe.store, HashEmbedder(), now=pipe.now, budget_seconds=0.0) for _ in range(4)]
    assert calls == [{"items": 1, "more": 1}] * 3 + [{"items": 0}]


def test_items_that_wait_for_their_vectors_are_seen_in_the_status(items: ItemsOf, pipe: Pipeline) -> None:
    """Given items whose model was changed, then they wait at a stage of their own, until they are embedded."""
    put(items, ["n"], "k", {"text": "lantern"})
    with pipe.store.writing() as tx:
        tx.waiting_items.wait_again("another")
    backlog = pipe.stores.counts(WORKSPACE).backlogs["items"]
    assert (backlog.waiting, backlog.oldest) == (1, NOW)
    embed_waiting(pipe.store, HashEmbedder(), now=pipe.now, budget_seconds=ENOUGH_SECONDS)
    assert pipe.stores.counts(WORKSPACE).backlogs["items"].waiting == 0


def test_a_put_succeeds_without_the_embedder_and_is_embedded_later(items: ItemsOf, pipe: Pipeline) -> None:
    """Given an embedder that is away, when items are put, then they are found at once, and by meaning when it is
    back; embedding twice changes nothing."""
    away = Away()
    waiting = replace(items, embedder=away)
    assert waiting.put([validated(PutItem(["n"], "a", {"text": "lantern"}))])[1]
    put(waiting, ["n"], "refused", {"text": "a refused text"})
    found = search(waiting, "n", query="lantern")
    assert ([item.score for item in found], found.degraded[:34]) == ([None, None], "not searched by meaning: the embed")
    assert embed_waiting(pipe.store, away, now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 0, "failed": 1}
    away.is_away = False
    assert embed_waiting(pipe.store, away, now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 2}
    assert embed_waiting(pipe.store, away, now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 0}
    found = search(waiting, "n", query="lantern")
    assert (found[0].key, found[0].score is not None, found.degraded) == ("a", True, "")


def test_without_an_embedder_a_query_says_that_it_compares_nothing(items: ItemsOf) -> None:
    """Given no embedder, when searched with a query, then the newest come first, and the answer says why."""
    bare = replace(items, embedder=None)
    put(bare, ["n"], "a", {"text": "lantern"})
    found = search(bare, "n", query="plums")
    assert [item.key for item in found] == ["a"]
    assert found.degraded == "not searched by meaning: no embedder is configured"


def test_an_item_put_again_while_it_is_embedded_keeps_no_vector_of_the_old_value(
    items: ItemsOf, pipe: Pipeline
) -> None:
    """Given a worker that embeds an item, when it is put again before the vectors are stored, then these are not."""
    put(replace(items, embedder=None), ["n"], "k", {"text": "old"})

    class PutMeanwhile(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[Any]:
            if texts == ["old"]:
                put(replace(items, embedder=None, now=NOW + 1), ["n"], "k", {"text": "new"})
            return super().embed(texts)

    assert embed_waiting(pipe.store, PutMeanwhile(), now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 1}
    assert search(items, "n", query="new")[0].score == pytest.approx(1)


def test_a_worker_killed_before_it_stores_vectors_leaves_the_items_waiting(items: ItemsOf, pipe: Pipeline) -> None:
    """Given a kill between embedding and the commit, then they are embedded once the lease of the dead has ended."""
    put(replace(items, embedder=None), ["n"], "k", {"text": "lantern"})

    class Killed(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_waiting(pipe.store, Killed(), now=pipe.now)
    pipe.advance(30)
    assert embed_waiting(pipe.store, HashEmbedder(), now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 1}


def test_an_item_that_kills_its_worker_is_set_aside_and_the_others_are_embedded(items: ItemsOf, pipe: Pipeline) -> None:
    """Given an item at which each worker dies, then it is a dead letter that can be replayed."""
    bare = replace(items, embedder=None)
    for key in ("deadly", "a", "b"):
        put(bare, ["n"], key, {"text": key})

    class Deadly(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[Any]:
            if texts == ["deadly"]:
                raise KeyboardInterrupt
            return super().embed(texts)

    for _ in range(6):
        with contextlib.suppress(KeyboardInterrupt):
            embed_waiting(pipe.store, Deadly(), now=pipe.now, budget_seconds=ENOUGH_SECONDS)
        pipe.advance(30)
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type, letter.attempts) == ("items", "WorkerCrashed", 4)
    assert pipe.stores.counts(WORKSPACE).backlogs["items"].waiting == 0
    assert [item.key for item in search(items, "n", query="a") if item.score is not None] == ["a", "b"]

    replay(pipe.store, pipe.inbox, letter.id)
    assert embed_waiting(pipe.store, HashEmbedder(), now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 1}
    assert pipe.dead_letters() == []


def test_an_item_that_was_set_aside_and_is_put_again_is_embedded(items: ItemsOf, pipe: Pipeline) -> None:
    """Given an item whose value kills its worker, when another value is put in its place, then that is embedded."""
    bare = replace(items, embedder=None)
    put(bare, ["n"], "k", {"text": "deadly"})
    for _ in range(4):
        claim_batch(pipe.store, "items", now=pipe.now(), limit=1)
        pipe.advance(30)
    assert embed_waiting(pipe.store, HashEmbedder(), now=pipe.now)["buried"] == 1
    put(replace(bare, now=NOW + 1), ["n"], "k", {"text": "harmless"})
    assert embed_waiting(pipe.store, HashEmbedder(), now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 1}


def test_the_sweep_notifies_the_workers_of_items_that_wait(items: ItemsOf, pipe: Pipeline) -> None:
    """Given an item without vectors whose task was lost, then the sweep notifies, until it is embedded."""
    put(replace(items, embedder=None), ["n"], "k", {"text": "lantern"})
    notified: list[tuple[str, str]] = []
    sweep = StageSweep(("items",))

    def run() -> None:
        sweep.run(pipe.stores, now=pipe.now(), notify=lambda stage, name: notified.append((stage, name)))

    run()
    assert notified == [("items", WORKSPACE)]
    embed_waiting(pipe.store, pipe.embedder, now=pipe.now)
    run()
    assert notified == [("items", WORKSPACE)]


def test_items_of_another_model_are_embedded_again(items: ItemsOf, pipe: Pipeline) -> None:
    """Given a changed model, when searched, then the answer says that vectors are missing until they are made."""

    class Other(HashEmbedder):
        model = "another"

    put(items, ["n"], "k", {"text": "lantern"})
    other: Embedder = Other()
    found = search(replace(items, embedder=other), "n", query="lantern")
    assert ([item.score for item in found], bool(found.degraded)) == ([None], True)
    assert embed_waiting(pipe.store, other, now=pipe.now, budget_seconds=ENOUGH_SECONDS) == {"items": 1}
    assert search(replace(items, embedder=other), "n", query="lantern")[0].score is not None


def test_a_long_text_is_found_by_any_of_its_parts(items: ItemsOf) -> None:
    """Given a text of many pieces, then one in the middle is found; what a put does not embed waits."""
    parts = [f"chapter {number} tells of topic{number} at length. " * 12 for number in range(20)]
    put(items, ["n"], "book", {"text": "".join(parts)})
    put(items, ["n"], "other", {"text": "plums"})
    pieces = pieces_to_embed({"text": "".join(parts)}, ["$"])
    assert len(pieces) > 5
    found = search(items, "n", query=pieces[5])[0]
    assert (found.key, found.score) == ("book", pytest.approx(1))
    assert items.put([validated(PutItem(["n"], f"b{n}", {"text": "".join(parts) + str(n)})) for n in range(3)])[1]


def test_items_are_counted_and_verified(items: ItemsOf, pipe: Pipeline) -> None:
    """Given puts, a change and a deletion, then the bytes that quotas go by are those of the rows."""
    put(items, ["n"], "k", {"v": "x" * 100})
    put(items, ["n"], "k", {"v": "é"})
    with pipe.store.reading() as tx:
        assert stored_amounts(tx.connection)["bytes"] == len('["n"]') + 1 + len('{"v":"é"}'.encode())
        assert wrong_amounts(tx.connection) == 0
    items.delete(["n"], "k")
    with pipe.store.reading() as tx:
        assert stored_amounts(tx.connection)["bytes"] == 0
        assert tx.connection.exec_driver_sql("SELECT count(*) FROM item_vectors").scalar() == 0
    assert verify(pipe.store).wrong == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"namespace": []}, "namespace is empty"),
    ({"namespace": ["a", ""]}, r"namespace\[1\] must be a text that is not empty"),
    ({"namespace": ["a"] * 17}, "namespace has 17 labels; the limit is 16"),
    ({"namespace": "users"}, "namespace must be a list, not a text"),
    ({"key": ""}, "key must be a text that is not empty"),
    ({"key": "k" * 513}, "key has 513 characters; the limit is 512"),
    ({"value": {"v": "x" * 600_000}}, "value has 600,008 bytes of JSON; the limit is 524,288"),
    ({"value": {"v": float("nan")}}, "value contains NaN"),
    ({"value": {"v": object()}}, "value cannot be written as JSON"),
    ({"value": {"v": "\ud800"}}, "value cannot be written as JSON"),
    ({"ttl_seconds": 0}, "ttl_seconds"),
    ({"index": ["a"] * 33}, "index has 33 paths; the limit is 32"),
    ({"index": ["a"], "vectors": [[1.0]]}, "index and vectors exclude each other"),
    ({"vectors": [[1.0], [1.0, 2.0]]}, "vectors has vectors of different lengths"),
    ({"vectors": [[]]}, r"vectors\[0\] must have 1 to 8,192 finite numbers"),
]


@pytest.mark.parametrize(("arguments", "expected_error"), WRONG)
def test_a_put_beyond_its_limits_names_the_argument(arguments: dict[str, Any], expected_error: str) -> None:
    """Given an invalid argument, then the error names it."""
    with pytest.raises(Rejected, match=expected_error):
        validated(PutItem(**{"namespace": ["n"], "key": "k", "value": {}, **arguments}))


def test_an_unknown_operator_is_refused_with_the_known_ones() -> None:
    """Given a misspelt operator, also further in, then the error names it and those that there are."""
    for conditions in ({"a": {"$in": [1]}}, {"a": {"b": {"$in": [1]}}}):
        with pytest.raises(Rejected, match=r"unknown operator '\$in'; known are \$eq, \$ne"):
            validated(SearchItems(filter=conditions))
    with pytest.raises(Rejected, match=r"operations\[0\]: namespace is empty"):
        validated(BatchItems([PutOperation(namespace=[], key="k", value={})]))
