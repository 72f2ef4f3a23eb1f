"""Over HTTP nothing of another agent shows, in results, numbers, errors or explanations; what is at fault is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from adapters.embedders.base import HashEmbedder
from reverie.client import Reverie
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

AGENT = {"X-Reverie-Agent": "ana"}
NEAR = HashEmbedder().embed_query("zanzibar canary").tolist()
RECALL, SEARCH = "/v1/recall", "/v1/sessions/search"


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over two sessions and a file of ana's, before anybody else has said anything."""
    with running_server(runtime) as address:
        with Reverie("ana", url=address) as ana:
            ana.ingest("s", [_user(f"zanzibar harbour {n}", tags=["bird"]) for n in range(12)], channel="trips")
            ana.ingest("t", [_user("the canary of zanzibar", name="Ada")])
            ana.files.add("file:///notes", "zanzibar in a file", session="s", tags=["bird"])
        drain(runtime)
        yield address


ASKED: list[tuple[str, dict[str, Any]]] = [
    (RECALL, {}),
    (RECALL, {"mode": "keyword"}),
    (RECALL, {"mode": "vector"}),
    (RECALL, {"fusion": "weighted"}),
    (RECALL, {"fusion": "rrf"}),
    (RECALL, {"fusion": "weighted", "vector_weight": 0.1}),
    (RECALL, {"fts_weight": 0.9}),
    (RECALL, {"session": "s"}),
    (RECALL, {"session": "s", "scope": "conversation"}),
    (RECALL, {"session": "s", "scope": "channel"}),
    (RECALL, {"session": "s", "scope": "workspace"}),
    (RECALL, {"session": "s", "scope": "account"}),
    (RECALL, {"channel": "trips"}),
    (RECALL, {"channel": "theirs"}),
    (RECALL, {"tags": ["bird"]}),
    (RECALL, {"tags": ["secret"]}),
    (RECALL, {"query_embedding": NEAR}),
    (RECALL, {"query": "", "query_embedding": NEAR}),
    (RECALL, {"query": ""}),
    (RECALL, {"query": "what did Bob say of zanzibar yesterday"}),
    (RECALL, {"limit": 1}),
    (RECALL, {"session": "hers"}),
    (RECALL, {"session": "hers", "scope": "channel"}),
    (SEARCH, {}),
    (SEARCH, {"mode": "keyword"}),
    (SEARCH, {"mode": "vector"}),
    (SEARCH, {"tags": ["bird"]}),
    (SEARCH, {"tags": ["secret"]}),
    (SEARCH, {"query": "nothing of the sort", "mode": "keyword"}),
    (SEARCH, {"query": ""}),
]


def test_what_another_agent_says_changes_no_byte_of_an_answer(url: str, runtime: Runtime) -> None:
    """Given answers to every kind of question, when another agent stores the same words 600 times, then they stay.

    The same session, channel, tags and file names are used, and some that only the other has.
    """
    before = [_asked(url, path, body) for path, body in ASKED]
    with Reverie("bob", url=url) as bob:
        for session, channel in (("s", "trips"), ("t", None), ("hers", "theirs")):
            messages = [_user(f"zanzibar canary BOBS {n}", tags=["bird", "secret"], name="Bob") for n in range(200)]
            bob.ingest(session, messages, channel=channel)
        bob.files.add("file:///notes", "BOBS zanzibar canary in a file", session="s", tags=["bird", "secret"])
    drain(runtime)
    after = [_asked(url, path, body) for path, body in ASKED]
    assert after == before
    assert all("BOBS" not in text for _, text in after)
    statuses = {json.dumps(body): status for (_, body), (status, _) in zip(ASKED, after, strict=True)}
    assert {body for body, status in statuses.items() if status != 200} == {
        json.dumps({"session": "hers"}),
        json.dumps({"session": "hers", "scope": "channel"}),
        *(json.dumps(body) for _, body in ASKED if body.get("channel") == "theirs"),
    }


def test_an_unused_tag_finds_nothing_without_an_error(url: str) -> None:
    for narrow in ({"tags": ["secret"]}, {"tags": ["bird", "secret"]}):
        status, text = _asked(url, RECALL, narrow)
        assert (status, json.loads(text)["results"]) == (200, [])


def test_a_channel_that_only_another_agent_has_is_unknown(url: str) -> None:
    """Given a channel of bob's, before and after he names it, then ana is told in the same words that she has none."""
    with Reverie("bob", url=url) as bob:
        before = _asked(url, RECALL, {"channel": "theirs"})
        bob.channels.create("theirs")
    status, text = _asked(url, RECALL, {"channel": "theirs"})
    assert (status, text) == before
    assert (status, "agent ana has no channel 'theirs'" in text) == (404, True)


def test_an_answer_without_explain_has_no_score(url: str) -> None:
    answered = httpx2.post(f"{url}{RECALL}", json={"query": "zanzibar"}, headers=AGENT)
    assert len(answered.json()["results"]) == 5
    assert "explanation" not in answered.text
    assert "score" not in answered.text


def test_a_query_of_a_hundred_thousand_characters_is_answered(url: str) -> None:
    """Given the longest queries there may be, one word, many words, marks and times, then each is answered."""
    for unit in ("x", "zanzibar ", "a\u0301\u0327", "\u0301\u0327", "may ", "in june ", "😀", "語", "2023-01-01 "):
        query = (unit * 100_000)[:100_000]
        for path in (RECALL, SEARCH):
            status, _ = _asked(url, path, {"query": query})
            assert status == 200, unit


# Path, what is asked on top of a query; then the status and the field that is named.
AT_FAULT: list[tuple[str, dict[str, Any], int, str]] = [
    (RECALL, {"tags": "bird"}, 422, "tags"),
    (RECALL, {"tags": [7]}, 422, "tags[0]"),
    (RECALL, {"tags": [None]}, 422, "tags[0]"),
    (RECALL, {"tags": ["x" * 65]}, 422, "tags"),
    (RECALL, {"tags": [str(n) for n in range(17)]}, 422, "tags"),
    (RECALL, {"tags": ["a\x00"]}, 422, "tags"),
    (RECALL, {"vector_weight": 1.5}, 422, "vector_weight"),
    (RECALL, {"vector_weight": -0.1}, 422, "vector_weight"),
    (RECALL, {"fts_weight": 2}, 422, "fts_weight"),
    (RECALL, {"fts_weight": "1"}, 422, "fts_weight"),
    (RECALL, {"vector_weight": 0.7, "fts_weight": 0.7}, 422, "vector_weight"),
    (RECALL, {"query_embedding": []}, 422, "query_embedding"),
    (RECALL, {"query_embedding": [1.0] * 63}, 422, "query_embedding"),
    (RECALL, {"query_embedding": [0.0] * 64}, 422, "query_embedding"),
    (RECALL, {"query_embedding": ["1.0"] * 64}, 422, "query_embedding[0]"),
    (RECALL, {"query_embedding": [[1.0]] * 64}, 422, "query_embedding[0]"),
    (RECALL, {"query_embedding": "near"}, 422, "query_embedding"),
    (RECALL, {"limit": 0}, 422, "limit"),
    (RECALL, {"limit": 10_000}, 422, "limit"),
    (RECALL, {"limit": 2.5}, 422, "limit"),
    (RECALL, {"limit": 2**70}, 422, "limit"),
    (RECALL, {"session": "hers"}, 404, "session"),
    (RECALL, {"session": ""}, 422, "session"),
    (RECALL, {"channel": ""}, 422, "channel"),
    (RECALL, {"scope": "galaxy"}, 422, "scope"),
    (RECALL, {"scope": "conversation"}, 422, "scope"),
    (RECALL, {"scope": "channel"}, 422, "scope"),
    (RECALL, {"fusion": "cold"}, 422, "fusion"),
    (RECALL, {"explain": "yes"}, 422, "explain"),
    (RECALL, {"query": 7}, 422, "query"),
    (SEARCH, {"tags": "bird"}, 422, "tags"),
    (SEARCH, {"tags": [7]}, 422, "tags[0]"),
    (SEARCH, {"limit": 0}, 422, "limit"),
    (SEARCH, {"limit": 10_000}, 422, "limit"),
    (SEARCH, {"mode": "psychic"}, 422, "mode"),
    (SEARCH, {"query": None}, 422, "query"),
    (SEARCH, {"query": "x" * 100_001}, 422, "query"),
    (SEARCH, {"session": "s"}, 422, "session"),
]


@pytest.mark.parametrize("known", [True, False], ids=["stored", "nothing stored"])
def test_what_is_at_fault_is_named(url: str, known: bool) -> None:
    """Given a request at fault, then the field is named, in a workspace that exists as in one that does not."""
    workspace = {} if known else {"X-Reverie-Workspace": "empty"}
    needs_store = ([], [1.0] * 63, [0.0] * 64)
    for path, body, status, field in AT_FAULT:
        if not known and body.get("query_embedding") in needs_store:
            continue  # its length is that of the store's model, of which there is none yet
        answered = httpx2.post(f"{url}{path}", json={"query": "zanzibar", **body}, headers={**AGENT, **workspace})
        assert (answered.status_code, answered.json()["field"]) == (status, field), body
        assert "zanzibar" not in answered.text


def test_a_vector_of_nan_is_no_json(url: str) -> None:
    content = '{"query": "x", "query_embedding": [' + ", ".join(["NaN"] * 64) + "]}"
    answered = httpx2.post(f"{url}{RECALL}", content=content, headers=AGENT)
    assert (answered.status_code, answered.json()["type"]) == (400, "urn:reverie:problem:rejected")


def _asked(url: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Status and text of an answer; of an error without its trace id."""
    explain = {"explain": True} if path == RECALL else {}
    asked = {"query": "the canary of zanzibar", "limit": 100, **explain, **body}
    answered = httpx2.post(f"{url}{path}", json=asked, headers={**AGENT, "X-Reverie-Trace": "t"}, timeout=60)
    return answered.status_code, answered.text


def _user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}
