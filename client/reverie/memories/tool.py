"""The tool `memory` for language models: remember, recall, forget.

    from reverie import MEMORY_TOOL, memory_tool
    ... tools=[MEMORY_TOOL] ...
    answer = memory_tool(client, **json.loads(call.function.arguments))

The answer is plain JSON and never an exception: what was wrong is said so that a model can mend it. Results carry no
scores, which would have a model play for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from reverie.errors import Rejected, ReverieError
from reverie.memories.types import FoundMemories, Memory, Remembered

if TYPE_CHECKING:
    from reverie.client import AsyncReverie, Reverie

_MOST_RESULTS: Final = 100

MEMORY_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "memory",
        "description": (
            "Your long-term memory. remember keeps a statement that will be useful later; recall finds what was"
            " remembered by words and by meaning; forget removes one memory by the id that remember or recall gave."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["remember", "recall", "forget"]},
                "content": {
                    "type": "string",
                    "description": "remember: one statement that stands by itself, with names and no pronouns",
                },
                "tags": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 64},
                    "maxItems": 16,
                    "description": "remember: words to find it by",
                },
                "context": {"type": "string", "description": "remember: where this came from, or why it matters"},
                "query": {"type": "string", "description": "recall: what to look for"},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": _MOST_RESULTS,
                    "description": "recall: how many results, 5 without it",
                },
                "mode": {
                    "type": "string",
                    "enum": ["keyword", "vector", "hybrid"],
                    "description": "recall: by words, by meaning, or both (hybrid, without it)",
                },
                "id": {"type": "string", "description": "forget: the id of the memory"},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    },
}

# What each action takes: what it needs, and what may be left out.
_ARGUMENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "remember": ("content", ("tags", "context")),
    "recall": ("query", ("limit", "mode")),
    "forget": ("id", ()),
}
_MODES: Final = ("keyword", "vector", "hybrid")


def memory_tool(client: Reverie, action: object = None, **arguments: object) -> dict[str, Any]:
    """Carry out one call of the tool: `{ok, id}`, `{ok, results: [{id, content, tags}]}` or `{ok}`.

    Whatever is wrong is `{"ok": False, "error": ...}`, which says what to do.
    """
    try:
        method, given = _prepared(action, arguments)
        return _answer(getattr(client, method)(**given))
    except ReverieError as error:
        return _failed(str(error))


async def memory_tool_async(client: AsyncReverie, action: object = None, **arguments: object) -> dict[str, Any]:
    """See `memory_tool`."""
    try:
        method, given = _prepared(action, arguments)
        return _answer(await getattr(client, method)(**given))
    except ReverieError as error:
        return _failed(str(error))


def _prepared(action: object, arguments: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """The method of the client and its arguments. Raises `Rejected` with what to call instead."""
    if not isinstance(action, str) or action not in _ARGUMENTS:
        raise Rejected(f"action is {str(action)[:80]!r}; it must be one of {', '.join(_ARGUMENTS)}", field="action")
    needed, others = _ARGUMENTS[action]
    # A model that fills in every argument writes null where it means none.
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name != needed and name not in others:
            known = ", ".join((needed, *others))
            raise Rejected(f"{action} takes no {name[:80]}; it takes {known}", field=name[:80])
    if not isinstance(given.get(needed), str) or not str(given[needed]).strip():
        raise Rejected(f"{action} needs {needed}, a text that is not blank", field=needed)
    return _METHODS[action](given)


def _remember(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    tags = given.get("tags", [])
    if not isinstance(tags, list):
        raise Rejected('tags must be a list of texts, such as ["coffee"]', field="tags")
    context = given.get("context")
    if context is not None and not isinstance(context, str):
        raise Rejected("context must be a text", field="context")
    metadata = {"context": context} if context else {}
    return "remember", {"content": given["content"], "tags": tags, "metadata": metadata}


def _recall(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    limit, mode = given.get("limit", 5), given.get("mode", "hybrid")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MOST_RESULTS:
        raise Rejected(f"limit must be a whole number from 1 to {_MOST_RESULTS}", field="limit")
    if mode not in _MODES:
        raise Rejected(f"mode must be one of {', '.join(_MODES)}", field="mode")
    return "search_memories", {"query": given["query"], "limit": limit, "mode": mode}


def _forget(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "forget", {"id": given["id"]}


_METHODS: Final[Mapping[str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]]] = {
    "remember": _remember,
    "recall": _recall,
    "forget": _forget,
}


def _answer(done: Remembered | FoundMemories | bool) -> dict[str, Any]:
    if isinstance(done, Remembered):
        return {"ok": True, "id": done.id}
    if isinstance(done, FoundMemories):
        return {"ok": True, "results": [_result(memory) for memory in done.results]}
    return {"ok": True} if done else _failed("there is no memory with this id: recall it first to learn its id")


def _result(memory: Memory) -> dict[str, Any]:
    return {"id": memory.id, "content": memory.content, "tags": memory.tags}


def _failed(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
