"""A session of the OpenAI Agents SDK whose items are messages of Reverie.

    from agents import Agent, Runner
    from reverie.frameworks.openai_agents import ReverieSession

    session = ReverieSession("chat-42", user="kate")
    await Runner.run(agent, "I moved to Lisbon in May.", session=session)

Items come back as they were added, in the order in which they were added. They can be recalled like all messages.
An item is the original of its message. Searches use its text: the words said, the name and the arguments of a tool
call, or the output of a tool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, cast

try:
    from agents.memory import SessionSettings
    from agents.memory.session_settings import coerce_session_settings
except ImportError as error:
    raise ImportError(
        "reverie.frameworks.openai_agents needs the OpenAI Agents SDK: pip install 'openai-agents>=0.24,<1'"
    ) from error

from reverie.checks import check_label
from reverie.client import Reverie
from reverie.contract import MAX_MESSAGES_PER_CALL, MAX_ORIGINAL_BYTES, Role
from reverie.errors import Rejected
from reverie.fields import MAX_PAGE
from reverie.frameworks import label, newest_first, searchable, settled
from reverie.sessions.types import Message

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

# A message is stored within a tenth of a second; a machine that is very busy takes longer.
_STORE_SECONDS: Final = 60.0
# In the metadata of messages whose original is an item.
FRAMEWORK: Final = "openai-agents"
_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
# The field of a tool call that says what it does, by kind of call.
_ARGUMENTS: Final = ("arguments", "input", "action", "queries", "code")


class ReverieSession:
    """A `Session` of the OpenAI Agents SDK. Safe to share between tasks, threads and event loops.

    Without a `client`, it makes one of its own, with the agent and the server that the environment names, and closes it
    in `close`; sessions that share one client share its connections. `user` is the end user whose session it is. With
    `wait="searchable"`, items can be recalled when `add_items` returns, which then takes the time of an embedding.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        client: Reverie | None = None,
        *,
        user: str | None = None,
        wait: Literal["stored", "searchable"] = "stored",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the settings; the first call connects.

        Raises `Rejected` for a session or a user that cannot be named so, and `TypeError` for a setting that the SDK
        does not know.
        """
        if wait not in ("stored", "searchable"):
            raise Rejected(f"wait is {wait!r}; it must be stored or searchable", field="wait")
        if client is not None and not isinstance(client, Reverie):
            raise TypeError(f"client must be a reverie.Reverie, not {type(client).__name__}")
        self.session_id: str = check_label("session_id", session_id, required=True)
        self.user: str | None = check_label("user", user)
        self._wait = wait
        self._client = client or Reverie()
        self._owns_client = client is None
        if isinstance(session_settings, Mapping):
            session_settings = dict(session_settings)
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._closed = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return all items, or the last `limit`, oldest first. The default limit is that of the session's settings.

        A message that was ingested into the session in another way is an item with its role and content.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        self._check_open()
        return await asyncio.to_thread(self._read, limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end; when this returns, they are stored.

        Raises `Rejected` before any is added if one cannot be, and `Unavailable` and `WaitTimeout`.
        """
        self._check_open()
        messages = [message_of(item) for item in items]
        if messages:
            await settled(lambda: self._add(messages))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item for good and return it, None if there is none; no two calls return the same one."""
        self._check_open()
        return await settled(self._pop)

    async def clear_session(self) -> None:
        """Forget the session with everything derived from it; items can be added to it again at once."""
        self._check_open()
        await settled(lambda: self._client.sessions.forget(self.session_id, user=self.user))

    def close(self) -> None:
        """End the use of this object, and close the connections unless the client was given. The items stay."""
        self._closed = True
        if self._owns_client:
            self._client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("ReverieSession is closed")

    def _read(self, limit: int | None) -> list[TResponseInputItem]:
        size = MAX_PAGE if limit is None else max(1, min(MAX_PAGE, limit))
        newest = newest_first(self._client, self.session_id, user=self.user, limit=size)
        items = (item for item in map(item_of, newest) if item is not None)
        return cast("list[TResponseInputItem]", list(islice(items, None if limit is None else max(0, limit)))[::-1])

    def _add(self, messages: list[Any]) -> None:
        for start in range(0, len(messages), MAX_MESSAGES_PER_CALL):
            receipt = self._client.ingest(
                self.session_id,
                messages[start : start + MAX_MESSAGES_PER_CALL],
                user=self.user,
                wait=self._wait,
                timeout_seconds=_STORE_SECONDS,
            )
            if receipt.rejected:
                first = receipt.rejected[0]
                raise Rejected(
                    f"item {start + first.index}: {first.error}", field="items", items=tuple(receipt.rejected)
                )

    def _pop(self) -> TResponseInputItem | None:
        while (message := self._client.sessions.pop_message(self.session_id, user=self.user)) is not None:
            if (item := item_of(message)) is not None:
                return cast("TResponseInputItem", item)
        return None


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
