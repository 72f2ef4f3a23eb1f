"""Recall over the workspace and the account: one ranking, as if all lay in one store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import EmbedderUnavailable
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from reverie.errors import NotFound
from support.pipeline import Pipeline
from support.recalling import BagOfWords, OnDiskOnly, find
from support.remembered import ids, keep, over_both, settle

WAYS = [
    {},
    {"mode": "keyword"},
    {"mode": "vector"},
    {"fusion": "weighted"},
    {"fusion": "rrf"},
    {"vector_weight": 0.8},
    {"kinds": ("memory",)},
]


class Counting(BagOfWords):
    """Counts how often a query was embedded, and may be down."""

    def __init__(self, model: str = "bag-of-words") -> None:
        self.model = model
        self.asked = 0
        self.down = False

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one text."""
        self.asked += 1
        if self.down:
            raise EmbedderUnavailable("the model is down")
        return super().embed_query(text)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """An empty workspace and an empty account."""
    pipe = Pipeline(tmp_path / "data", embedder=Counting())
    yield pipe
    pipe.close()


@pytest.fixture
def union(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace that is to hold what the other one and its account hold together."""
    pipe = Pipeline(tmp_path / "union", embedder=Counting())
    yield pipe
    pipe.close()


SAID = [
    "The 28 goes down to the harbour",
    {"content": "I had soup at the harbour last week", "name": "Kate"},
    {"content": "The boat to the island leaves at nine", "name": "Otto"},
    "My cat sleeps on the sofa all day",
]
HERE = {"w1": "the island has no harbour", "w2": "the cat is called Moss", "w3": "nine boats lay there in August"}
ABROAD = {
    "a1": "prefers the boat to the bus",
    "a2": "when asked for a way, name the tram first",
    "a3": "Kate prefers soup at the harbour, or soup at home, or any soup",
    "a4": "prefers cats",
    "a5": "prefers short answers",
}
QUERIES = [
    "harbour",
    "which boat sails to the island at nine",
    "what soup does Kate like",
    "a cat on the sofa",
    "what happened last week",
    "prefers",
    "zeppelins over Greenland",
]


def fill(pipe: Pipeline, *, together: bool) -> None:
    start = 1_777_000_000_000_000
    turns = [{"content": turn} if isinstance(turn, str) else turn for turn in SAID]
    pipe.say(*[{**turn, "id": f"t{number}", "created_at": f"2026-04-{10 + number}T09:00:00Z"}
               for number, turn in enumerate(turns)])  # fmt: skip
    settle(pipe)
    for number, (name, text) in enumerate({**HERE, **ABROAD}.items()):
        place = pipe.stores.account_store() if name in ABROAD and not together else pipe.store
        tier = "account" if name in ABROAD else "workspace"
        keep(pipe, name, text, store=place, tier=tier, created_at=start + number)
    settle(pipe)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_two_stores_are_ranked_as_one(pipe: Pipeline, union: Pipeline, way: dict[str, Any]) -> None:
    """Given the same memories in the account and, beside it, in one workspace, then every recall gives the same results
    with the same scores: ranks, retrievers and shares."""
    fill(pipe, together=False)
    fill(union, together=True)
    for query in QUERIES:
        two = over_both(pipe, query, limit=20, explain=True, **way)
        one = over_both(union, query, limit=20, explain=True, **way)
        assert rounded_results(two) == rounded_results(one), query
        assert [hit.score for hit in two.hits] == pytest.approx([hit.score for hit in one.hits], abs=1e-6)
        assert {hit.store for hit in one.hits} <= {"ws"}
        stores = {result.id: hit.store for result, hit in zip(two.response, two.hits, strict=True)}
        assert all((store == "@account") == (name in ABROAD) for name, store in stores.items())


def rounded_results(found: RecallOutcome) -> list[Any]:
    """Each result with its retrievers, rounded."""
    return [
        (
            result.id,
            {
                name: (one.rank, round(one.score, 4), round(one.normalised, 4))
                for name in ("keyword", "keyword_around", "vector", "vector_around", "speaker", "date")
                if (one := getattr(result.explanation, name)) is not None
            },
        )
        for result in found.response
    ]


def test_an_account_alone_is_ranked_by_itself(pipe: Pipeline) -> None:
    """Given a workspace in which nothing was said, then what holds across workspaces is found all the same."""
    for name, text in ABROAD.items():
        keep(pipe, name, text, tier="account")
    settle(pipe)
    for way in WAYS:
        assert ids(over_both(pipe, "prefers cats", **way))[0] == "a4", way
    account = pipe.stores.account_store()
    alone = find(account, pipe.embedder, RecallRequest(query="prefers cats", agent="ana"))
    assert [hit.store for hit in alone.hits] == ["@account"] * len(alone.hits)
    assert ids(alone) == ids(over_both(pipe, "prefers cats"))


def test_what_holds_in_every_workspace_is_found_in_each(pipe: Pipeline) -> None:
    """Given a memory of the account, then two workspaces find it, and neither finds what the other one holds."""
    keep(pipe, "a", "prefers the window seat", tier="account")
    keep(pipe, "w", "window seats are at the left")
    other = pipe.stores.workspace("other")
    keep(pipe, "o", "the window is dirty", store=other)
    settle(pipe)
    account = pipe.stores.account_store()
    there = find(other, pipe.embedder, RecallRequest(query="window", agent="ana"), account=account)
    assert ids(there) == ["a"]  # the other one's own memory has not been cut yet
    assert sorted(ids(over_both(pipe, "window"))) == ["a", "w"]


@pytest.mark.parametrize(
    "narrow",
    [{"session": "s"}, {"scope": "workspace"}, {"channel": "c"}, {"kinds": ("message", "file")}, {"tags": ("x",)}],
)
def test_a_narrower_recall_looks_into_no_other_store(pipe: Pipeline, narrow: dict[str, Any]) -> None:
    """Given a memory of the account, then a session, a channel, the workspace's scope and other kinds find none."""
    pipe.say("hello", channel="c")
    keep(pipe, "a", "prefers the window seat", tier="account")
    settle(pipe)
    assert "a" not in ids(over_both(pipe, "window seat", **narrow))


def test_an_unknown_session_is_an_error_here_too(pipe: Pipeline) -> None:
    keep(pipe, "a", "prefers the window seat", tier="account")
    settle(pipe)
    with pytest.raises(NotFound, match="no session 'nowhere'"):
        over_both(pipe, "window", session="nowhere", scope="account")


def test_a_query_is_embedded_once(pipe: Pipeline) -> None:
    """Given vectors of one model in both stores, then the query is embedded once, and not at all for words."""
    fill(pipe, together=False)
    embedder = pipe.embedder
    assert isinstance(embedder, Counting)
    over_both(pipe, "harbour")
    assert embedder.asked == 1
    over_both(pipe, "harbour", mode="keyword")
    assert embedder.asked == 1


def test_stores_of_two_models_are_each_asked_in_their_own(pipe: Pipeline) -> None:
    """Given an account whose vectors another model made, then the query is embedded by that one for it, a vector that
    comes with the query serves the workspace alone, and an embedder that is down leaves words."""
    pipe.say("hello there")
    settle(pipe)
    pipe.embedder = other = Counting("another")
    keep(pipe, "a", "prefers the boat", tier="account")
    settle(pipe)
    mine = Counting()
    account = pipe.stores.account_store()

    def asked(query: str, **more: Any) -> RecallOutcome:
        request = RecallRequest(query=query, agent="ana", **more)
        return find(pipe.store, mine, request, account=account, account_embedder=other)

    assert ids(asked("vessel"))[0] == "a"  # found by meaning alone
    assert (mine.asked, other.asked) == (1, 1)
    given = asked("vessel", query_embedding=mine.embed(["vessel"])[0].tolist())
    assert "a" not in ids(given)
    assert "of another model than the query's" in given.response.degraded
    assert other.asked == 1
    other.down = True
    assert "a" not in ids(asked("vessel"))
    assert "a" in ids(asked("boat"))
    assert asked("boat").response.degraded == "keyword only: the model is down"


def test_words_find_what_the_account_holds_while_the_embedder_is_away(pipe: Pipeline) -> None:
    fill(pipe, together=False)
    embedder = pipe.embedder
    assert isinstance(embedder, Counting)
    embedder.down = True
    found = over_both(pipe, "prefers cats")
    assert ids(found)[0] == "a4"
    assert found.response.degraded == "keyword only: the model is down"


def test_both_stores_answer_from_disk_while_their_indexes_are_made(pipe: Pipeline) -> None:
    fill(pipe, together=False)
    pipe.indexes = OnDiskOnly()
    for way in WAYS:
        assert ids(over_both(pipe, "prefers cats", limit=20, **way))[0] in ("a4", "t3"), way
        assert "a4" in ids(over_both(pipe, "prefers cats", limit=20, **way)), way


def test_an_agent_without_memories_there_costs_one_look(pipe: Pipeline) -> None:
    """Given memories of another agent in the account, then nothing of it is read for this one."""
    pipe.say("hello there")
    keep(pipe, "b", "prefers cats", agent="bob", tier="account")
    settle(pipe)
    seen: list[str] = []
    account = pipe.stores.account_store()
    reading = account.reading
    account.reading = lambda: seen.append("look") or reading()  # type: ignore[method-assign,func-returns-value]
    assert ids(over_both(pipe, "cats and hello"))
    assert seen == ["look"]
