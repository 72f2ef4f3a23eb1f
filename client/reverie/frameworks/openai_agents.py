"""A session of the OpenAI Agents SDK whose items are messages of Reverie.

    from agents import Agent, Runner
    from reverie.frameworks.openai_agents import ReverieSession

    session = ReverieSession("chat-42", user="kate")
    await Runner.run(agent, "I moved to Lisbon in May.", session=session)

Items come back as they were added, in the order in which they were added. They can be recalled like all messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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
from reverie.contract import MAX_MESSAGES_PER_CALL
from reverie.errors import NotFound, Rejected
from reverie.fields import MAX_PAGE
from reverie.frameworks.response_items import item_of, message_of
from reverie.frameworks.settling import settled

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

# A message is stored within a tenth of a second; a machine that is very busy takes longer.
_STORE_SECONDS: Final = 60.0


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
        """Open nothing yet.

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
        await settled(lambda: self._client.forget_session(self.session_id, user=self.user))

    def close(self) -> None:
        """End the use of this object, and close the connections unless the client was given. The items stay."""
        self._closed = True
        if self._owns_client:
            self._client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("ReverieSession is closed")

    def _read(self, limit: int | None) -> list[TResponseInputItem]:
        items: list[dict[str, Any]] = []
        before: int | None = None
        while limit is None or len(items) < limit:
            size = MAX_PAGE if limit is None else min(MAX_PAGE, limit - len(items))
            try:
                page = self._client.newest_messages(self.session_id, limit=size, before=before, user=self.user)
            except NotFound:
                break
            if not page:
                break
            before = page[0].sequence
            items += (item for item in map(item_of, reversed(page)) if item is not None)
            if before == 1:
                break
        return cast("list[TResponseInputItem]", items[::-1])

    def _add(self, messages: list[dict[str, Any]]) -> None:
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
        while (message := self._client.pop_message(self.session_id, user=self.user)) is not None:
            if (item := item_of(message)) is not None:
                return cast("TResponseInputItem", item)
        return None
