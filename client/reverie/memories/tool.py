"""The tool `memory` for language models: remember, recall, forget.

    from reverie import MEMORY_TOOL, memory_tool
    ... tools=[MEMORY_TOOL] ...
    result = memory_tool(client, **json.loads(call.function.arguments))

The result is plain JSON; errors are returned instead of raised, with a text from which a model can correct its call.
Results have no scores, so that a model does not optimise for them. Their texts are inert: no memory can end the
result that it is in, nor hide anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from reverie.errors import Rejected, ReverieError
from reverie.inert import inert, inert_line
from reverie.memories.types import FoundMemories, Memory, Remembered, changed_text

if TYPE_CHECKING:
    from reverie.client import AsyncReverie, Reverie

_MAX_RESULTS: Final = 100
# Memories with a lower relevance are not shown: a model takes whatever it is shown for an answer.
_MIN_RELEVANCE: Final = 0.03

MEMORY_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "memory",
        "description": (
            "Your long-term memory. remember stores a statement that will be useful later; recall finds memories by"
            " words and by meaning; forget deletes one memory by the id that remember or recall returned."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["remember", "recall", "forget"]},
                "content": {
                    "type": "string",
                    "description": "remember: one self-contained statement, with names instead of pronouns",
                },
                "tags": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 64},
                    "maxItems": 16,
                    "description": "remember: keywords of the statement",
                },
                "context": {"type": "string", "description": "remember: where it comes from, or why it matters"},
                "query": {"type": "string", "description": "recall: what to search for"},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": _MAX_RESULTS,
                    "description": "recall: the maximum number of results, by default 5",
                },
                "mode": {
                    "type": "string",
                    "enum": ["keyword", "vector", "hybrid"],
                    "description": "recall: search by words, by meaning, or by both (hybrid, the default)",
                },
                "id": {"type": "string", "description": "forget: the id of the memory"},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    },
}

# The arguments of each action: the required one and the optional ones.
_ARGUMENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "remember": ("content", ("tags", "context")),
    "recall": ("query", ("limit", "mode")),
    "forget": ("id", ()),
}
_MODES: Final = ("keyword", "vector", "hybrid")


def memory_tool(client: Reverie, action: object = None, **arguments: object) -> dict[str, Any]:
    """Execute a call of the tool; return `{ok, id}`, `{ok, results: [{id, content, tags}]}` or `{ok}`.

    `duplicates` of a result is the number of memories that say the same and were left out, if any.

    Errors of Reverie are returned as `{"ok": False, "error": ...}` with what to do.
    """
    try:
        method, given = _prepared(action, arguments)
        return _tool_result(attrgetter(method)(client)(**given))
    except ReverieError as error:
        return _failed(str(error))


async def memory_tool_async(client: AsyncReverie, action: object = None, **arguments: object) -> dict[str, Any]:
    """Execute a call of the tool with an asyncio client; see `memory_tool`."""
    try:
        method, given = _prepared(action, arguments)
        return _tool_result(await attrgetter(method)(client)(**given))
    except ReverieError as error:
        return _failed(str(error))


def _prepared(action: object, arguments: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """Return the client's method and its arguments. Raises `Rejected` with the arguments that the action takes."""
    if not isinstance(action, str) or action not in _ARGUMENTS:
        shown = "missing" if action is None else repr(str(action)[:80])
        raise Rejected(f"action is {shown}; it must be one of {', '.join(_ARGUMENTS)}", field="action")
    required, optional = _ARGUMENTS[action]
    # Models that fill in every argument write null for those that they leave out.
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name != required and name not in optional:
            known = ", ".join((required, *optional))
            raise Rejected(f"{action} does not take {name[:80]}; it takes {known}", field=name[:80])
    if not isinstance(given.get(required), str) or not str(given[required]).strip():
        raise Rejected(f"{action} needs {required}, a text that is not blank", field=required)
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
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MAX_RESULTS:
        raise Rejected(f"limit must be a whole number from 1 to {_MAX_RESULTS}", field="limit")
    if mode not in _MODES:
        raise Rejected(f"mode must be one of {', '.join(_MODES)}", field="mode")
    return "memories.search", {"query": given["query"], "limit": limit, "mode": mode}


def _forget(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "forget", {"id": given["id"]}


_METHODS: Final[Mapping[str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]]] = {
    "remember": _remember,
    "recall": _recall,
    "forget": _forget,
}


def _tool_result(response: Remembered | FoundMemories | bool) -> dict[str, Any]:
    if isinstance(response, Remembered):
        return {"ok": True, "id": response.id}
    if isinstance(response, FoundMemories):
        found = [memory for memory in response.results if _fits(response, memory)]
        return {"ok": True, "results": [_result(response, memory) for memory in found]}
    return {"ok": True} if response else _failed("there is no memory with this id: recall it first to learn its id")


def _fits(response: FoundMemories, memory: Memory) -> bool:
    """Return whether a memory is relevant enough; a server that tells no relevances has decided by itself."""
    return response.relevances.get(memory.id, 1.0) >= _MIN_RELEVANCE


def _result(response: FoundMemories, memory: Memory) -> dict[str, Any]:
    result = {"id": memory.id, "content": inert(memory.content), "tags": [inert_line(tag) for tag in memory.tags]}
    duplicates = response.duplicates.get(memory.id, 0)
    since = response.changed_since.get(memory.id)
    note = inert_line(memory.review) or (changed_text(since, clean=inert_line) if since is not None else "")
    result |= {"note": note} if note else {}
    return result | ({"duplicates": duplicates} if duplicates else {})


def _failed(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
