"""Messages for items of the Responses API, which the OpenAI Agents SDK keeps in its sessions, and items for messages.

An item becomes the original of its message, so it comes back exactly as it was. What is searched is its text: what was
said, the name and the arguments of a tool call, or the output of a tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reverie.contract import MAX_ORIGINAL_BYTES, Role
from reverie.errors import Rejected
from reverie.frameworks.searchable import label, searchable
from reverie.sessions.types import Message

# In the metadata of messages whose original is an item.
FRAMEWORK: Final = "openai-agents"
_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
# Where the kinds of tool calls say what they do.
_ARGUMENTS: Final = ("arguments", "input", "action", "queries", "code")


def message_of(item: object) -> dict[str, Any]:
    """Return the message of an item. Raises `Rejected` for one that is not an object or is larger than 3 MiB."""
    if not isinstance(item, Mapping):
        raise Rejected(f"an item of a session must be an object, not {type(item).__name__}", field="items")
    message: dict[str, Any] = {
        "role": _role(item),
        "content": searchable("\n".join(_texts(item))),
        "original": _encoded(item),
        "metadata": {"framework": FRAMEWORK},
    }
    kind = item.get("type")
    if isinstance(kind, str) and kind.endswith("_call"):
        message["tool_calls"] = [_tool_call(item, kind)]
    elif message["role"] == "tool":
        message["tool_call_id"] = label(item.get("call_id"))
    return message


def item_of(message: Message) -> dict[str, Any] | None:
    """Return the item of a message, also of one that was not added as an item.

    None for one that the Responses API does not take by itself: the result of a tool, or a message without content.
    """
    if message.original is not None and message.metadata.get("framework") == FRAMEWORK:
        item: dict[str, Any] = json.loads(message.original)
        return item
    if message.role == "tool" or not message.content:
        return None
    return {"role": message.role, "content": message.content}


def _encoded(item: Mapping[str, Any]) -> str:
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can express
        text = json.dumps(item, separators=(",", ":"))
        size = len(text)
    if size > MAX_ORIGINAL_BYTES:
        raise Rejected(
            f"an item has {size:,} bytes as JSON; the limit is {MAX_ORIGINAL_BYTES:,}:"
            " keep large files and images elsewhere, and name them by their URL",
            field="items",
        )
    return text


def _role(item: Mapping[str, Any]) -> Role:
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    return "tool" if isinstance(kind, str) and kind.endswith("_output") else "assistant"


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    for name in ("content", "output", "summary"):
        value = item.get(name)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Mapping):
                yield from (part[key] for key in ("text", "refusal", "transcript") if isinstance(part.get(key), str))


def _tool_call(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    arguments = next((item[name] for name in _ARGUMENTS if item.get(name)), "")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    call: dict[str, Any] = {
        "type": "function",
        "function": {"name": label(item.get("name")) or label(kind), "arguments": searchable(text)},
    }
    call_id = label(item.get("call_id")) or label(item.get("id"))
    return {"id": call_id, **call} if call_id else call
