"""The tool `memory` for language models: its three actions, its schema, and what it says of calls at fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reverie.errors import Rejected, Unavailable
from reverie.memories.tool import MEMORY_TOOL, memory_tool
from reverie.memories.types import FoundMemories, Remembered


class Recorder:
    """Stands in for a client: notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.there = True
        self.error: Exception | None = None
        self.memories = self

    def remember(self, **arguments: Any) -> Remembered:
        self._note("remember", arguments)
        return Remembered(id="m1")

    def search(self, **arguments: Any) -> FoundMemories:
        self._note("memories.search", arguments)
        return FoundMemories(results=[])

    def forget(self, **arguments: Any) -> bool:
        self._note("forget", arguments)
        return self.there

    def _note(self, method: str, arguments: dict[str, Any]) -> None:
        self.asked.append((method, arguments))
        if self.error is not None:
            raise self.error


def call(client: Recorder, **arguments: Any) -> dict[str, Any]:
    """A call as it comes from a model: JSON."""
    answer = memory_tool(client, **json.loads(json.dumps(arguments)))  # type: ignore[arg-type]
    assert json.loads(json.dumps(answer)) == answer
    return answer


def test_the_three_actions() -> None:
    """Given the three actions with what they need, then the client is asked, and the answers have their form."""
    client = Recorder()
    assert call(client, action="remember", content="x", tags=["a"], context="c") == {"ok": True, "id": "m1"}
    assert call(client, action="remember", content="x", tags=None, context=None) == {"ok": True, "id": "m1"}
    assert call(client, action="recall", query="x") == {"ok": True, "results": []}
    assert call(client, action="recall", query="x", limit=9, mode="keyword")["ok"]
    assert call(client, action="forget", id="m1") == {"ok": True}
    assert client.asked == [
        ("remember", {"content": "x", "tags": ["a"], "metadata": {"context": "c"}}),
        ("remember", {"content": "x", "tags": [], "metadata": {}}),
        ("memories.search", {"query": "x", "limit": 5, "mode": "hybrid"}),
        ("memories.search", {"query": "x", "limit": 9, "mode": "keyword"}),
        ("forget", {"id": "m1"}),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected_error"),
    [
        ({}, "action is missing; it must be one of remember, recall, forget"),
        ({"action": "memorise"}, "must be one of remember, recall, forget"),
        ({"action": ["recall"]}, "must be one of remember, recall, forget"),
        ({"action": "remember"}, "remember needs content"),
        ({"action": "remember", "content": " "}, "remember needs content"),
        ({"action": "remember", "content": 3}, "remember needs content"),
        (
            {"action": "remember", "content": "x", "query": "y"},
            "remember does not take query; it takes content, tags, context",
        ),
        ({"action": "remember", "content": "x", "tags": "a, b"}, 'tags must be a list of texts, such as ["coffee"]'),
        ({"action": "remember", "content": "x", "context": {}}, "context must be a text"),
        ({"action": "recall"}, "recall needs query"),
        ({"action": "recall", "query": "x", "limit": 0}, "limit must be a whole number from 1 to 100"),
        ({"action": "recall", "query": "x", "limit": True}, "limit must be a whole number"),
        ({"action": "recall", "query": "x", "limit": "5"}, "limit must be a whole number"),
        ({"action": "recall", "query": "x", "mode": "magic"}, "mode must be one of keyword, vector, hybrid"),
        ({"action": "forget"}, "forget needs id"),
        ({"action": "forget", "id": "m", "content": "x"}, "forget does not take content; it takes id"),
    ],
)
def test_a_call_at_fault_is_answered_with_what_to_do(arguments: dict[str, Any], expected_error: str) -> None:
    """Given a call at fault, then it is never an exception, nothing is asked, and the answer says what to do."""
    client = Recorder()
    answer = call(client, **arguments)
    assert answer["ok"] is False
    assert expected_error in answer["error"]
    assert client.asked == []


@pytest.mark.parametrize("error", [Rejected("tags: too many", field="tags"), Unavailable("the server does not answer")])
def test_errors_of_the_client_are_answers(error: Exception) -> None:
    """Given a client that refuses, or whose server is down, then the model is told so."""
    client = Recorder()
    client.error = error
    assert call(client, action="recall", query="x") == {"ok": False, "error": str(error)}


def test_forgetting_what_is_not_there_says_so() -> None:
    """Given an id that nothing has, then the answer says how to find one."""
    client = Recorder()
    client.there = False
    assert call(client, action="forget", id="m") == {
        "ok": False,
        "error": "there is no memory with this id: recall it first to learn its id",
    }


def test_the_schema_names_what_the_tool_takes() -> None:
    """Given the schema, then it is JSON, and its arguments are exactly those that the actions take."""
    schema = json.loads(json.dumps(MEMORY_TOOL))["function"]
    assert schema["name"] == "memory"
    properties = schema["parameters"]["properties"]
    assert properties["action"]["enum"] == ["remember", "recall", "forget"]
    assert set(properties) == {"action", "content", "tags", "context", "query", "limit", "mode", "id"}
    assert schema["parameters"]["additionalProperties"] is False
