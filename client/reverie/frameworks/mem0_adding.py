"""Add memories as mem0 does: messages as they are, or what the server extracts from them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET

from reverie.client import Reverie
from reverie.clock import new_id
from reverie.contract import MAX_MESSAGES_PER_CALL, MAX_TAGS
from reverie.errors import Conflict
from reverie.fields import MAX_PAGE
from reverie.frameworks.mem0_records import SOURCE, InvalidCall, Scope, check_size, metadata_of, public_id
from reverie.memories.types import Memory

# A message is stored, and a memory indexed, within a second; a machine that is very busy takes longer.
_STORE_SECONDS: Final = 60.0
# Another call may end the session between storing and reading; it then reads what both stored, or this one does.
_ATTEMPTS: Final = 5


def remember_each(
    client: Reverie, scope: Scope, messages: list[dict[str, Any]], custom: dict[str, Any], expires_at: datetime | None
) -> list[dict[str, Any]]:
    """Remember each message as it is, without those of the system; return what mem0 returns of them."""
    kept = [message for message in messages if message["role"] != "system"]
    for message in kept:
        check_size(message["content"])
    results = []
    for number, message in enumerate(kept, start=1):
        remembered = client.remember(
            message["content"],
            user=scope.user_id,
            source=SOURCE,
            pinned=True,  # no job merges or removes it
            tags=scope.tags,
            session=scope.session if scope.run_id is not None else None,
            metadata=metadata_of(scope, custom, message),
            expires_at=expires_at,
            # Memories are indexed in their order.
            wait="searchable" if number == len(kept) else "stored",
            timeout_seconds=_STORE_SECONDS,
        )
        actor = {"actor_id": message.get("name"), "role": message["role"]}
        results.append({**_added(scope, remembered.id, message["content"]), **actor})
    return results


def extract(
    client: Reverie, scope: Scope, messages: list[dict[str, Any]], custom: dict[str, Any], expires_at: datetime | None
) -> list[dict[str, Any]]:
    """Store messages in the session of a scope, let the server extract memories, and label and return these."""
    named = {new_id(): message for message in messages}
    drafts = [{"id": id, **message} for id, message in named.items()]
    for start in range(0, len(drafts), MAX_MESSAGES_PER_CALL):
        receipt = client.ingest(
            scope.session,
            drafts[start : start + MAX_MESSAGES_PER_CALL],
            user=scope.user_id,
            wait="stored",
            timeout_seconds=_STORE_SECONDS,
        )
        if receipt.rejected:
            first = receipt.rejected[0]
            raise InvalidCall(f"messages[{start + first.index}]: {first.error}", field="messages")
    if not drafts:
        return []
    _read_session(client, scope)
    results = []
    for memory in listed(client, scope.user_id, session=scope.session):
        if memory.source_message not in named:
            continue
        client.update_memory(
            memory.id,
            user=scope.user_id,
            metadata=metadata_of(scope, custom),
            tags=list(dict.fromkeys([*memory.tags, *scope.tags]))[:MAX_TAGS],
            expires_at=UNSET if expires_at is None else expires_at,
        )
        results.append(_added(scope, memory.id, memory.content))
    return results[::-1]


def _added(scope: Scope, stored_id: str, text: str) -> dict[str, Any]:
    return {"id": public_id(scope.user_id, stored_id), "memory": text, "event": "ADD"}


def _read_session(client: Reverie, scope: Scope) -> None:
    """Let the server extract memories from a session at once: it does before a session ends."""
    for _ in range(_ATTEMPTS):
        try:
            client.close_session(scope.session, user=scope.user_id)
        except Conflict:  # another call has ended it
            client.start_session(scope.session, user=scope.user_id)
        else:
            return


def listed(client: Reverie, user: str | None, session: str | None = None) -> Iterator[Memory]:
    """Yield the current memories of a user, or those of nobody, newest first."""
    offset = 0
    while True:
        page = client.memories(user=user, owner_user_id=user, session=session, limit=MAX_PAGE, offset=offset)
        yield from (memory for memory in page if memory.owner_user_id == user)
        if len(page) < MAX_PAGE:
            return
        offset += MAX_PAGE
