"""mem0's calls on the memories of Reverie, without mem0.

    from reverie.frameworks.mem0 import Memory

    memory = Memory()
    memory.add("I moved to Lisbon in May.", user_id="kate")
    memory.search("where does she live?", filters={"user_id": "kate"})

Arguments and results are those of mem0ai 2.2; an argument without a counterpart is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import msgspec

from reverie.client import Reverie
from reverie.clock import new_id
from reverie.contract import MAX_MESSAGES_PER_CALL, MAX_TAGS
from reverie.errors import Conflict, NotFound, WaitTimeout
from reverie.frameworks import all_pages, settled
from reverie.frameworks.mem0_records import (
    REWRITTEN,
    SOURCE,
    Filters,
    InvalidCall,
    MemoryNotFound,
    Scope,
    changed_metadata,
    check_size,
    connection_of,
    count_of,
    custom_metadata,
    expiry_of,
    fields_of,
    history_of,
    item_of,
    messages_of,
    metadata_of,
    public_id,
    refuse,
    refuse_unknown,
    scope_of,
    scope_of_session,
    user_and_id,
)
from reverie.memories import types
from reverie.recall.calls import MAX_RESULTS

__all__ = ["AsyncMemory", "InvalidCall", "Memory", "MemoryNotFound"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

UNSET: Final[Any] = object()
# An erasure searches every file of the store for leftovers.
_RESET_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.1


class Memory:
    """The calls of mem0's `Memory`, on the memories of an agent of Reverie. Safe to share between threads.

    It takes a `client`, or the arguments of `Reverie`, by default from the environment. `user_id` is an
    end user, whom the server keeps apart from all others; `agent_id` and `run_id` are labels, as in mem0.
    """

    def __init__(self, client: Reverie | None = None, *, agent: str | None = None, **connection: Any) -> None:
        """Connect with the first call. Raises `TypeError` for a configuration of mem0: see `from_config`."""
        if client is not None and not isinstance(client, Reverie):
            raise TypeError(f"client must be a reverie.Reverie, not {type(client).__name__}; see Memory.from_config")
        if client is not None and (agent is not None or connection):
            raise TypeError("client has an agent and a connection already: give either a client or these")
        self._owns_client = client is None
        self._client = client if client is not None else Reverie(agent, **connection)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Return a memory with the arguments of `Reverie` that are under "reverie" in a configuration.

        Raises `InvalidCall` for parts that mem0 sets up in its own process, but Reverie's server provides itself.
        """
        return cls(**connection_of(config_dict))

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: object = None,
        expiration_date: object = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        llm: object = None,
    ) -> dict[str, Any]:
        """Remember facts from messages, or with `infer=False` each message as it is; return the new memories.

        With `infer`, the messages are stored in a session, and the server extracts memories from those of users before
        this returns. Without it, system messages are left out. Raises `InvalidCall`, `Unavailable` and `WaitTimeout`.
        """
        refuse(timestamp=timestamp, memory_type=memory_type, prompt=prompt, llm=llm)
        scope = scope_of(user_id, agent_id, run_id)
        expires_at = expiry_of(expiration_date)
        custom = custom_metadata(metadata, scope._asdict())
        checked = messages_of(messages)
        if infer:
            return {"results": extract(self._client, scope, checked, custom, expires_at)}
        return {"results": remember_each(self._client, scope, checked, custom, expires_at)}

    def search(
        self,
        /,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = False,  # noqa: ARG002 - whether results are reranked is the server's to decide
        explain: bool = False,
        reference_date: object = None,
        show_expired: bool = False,
        limit: int | None = None,
        **unknown: Any,
    ) -> dict[str, Any]:
        """Return the memories that fit a query, best first, with their relevance as `score`.

        Without a `threshold` nothing is left out: mem0's 0.1 is low for a cosine, but high for a relevance, which is a
        probability. `limit` is an older name of `top_k`, at most 100. `rerank` changes nothing: a reranker is the
        server's to use, and the order is the server's. The conditions of filters are checked on the 100
        memories of the user that fit best.
        """
        refuse_unknown("search", unknown)
        refuse(reference_date=reference_date, show_expired=show_expired, explain=explain)
        wanted, chosen = count_of(top_k if limit is None else limit, MAX_RESULTS), Filters(filters)
        if not isinstance(query, str) or not query.strip():
            raise InvalidCall("query must be a text that is not blank", field="query")
        if threshold is not None and not (isinstance(threshold, (int, float)) and 0 <= threshold <= 1):
            raise InvalidCall(f"threshold is {threshold!r}; it must be from 0 to 1", field="threshold")
        if wanted == 0:
            return {"results": []}
        found, scores = self._search_memories(query, chosen, threshold)
        if len(found) == MAX_RESULTS and chosen.scope.tags:
            more, more_scores = self._search_memories(query, chosen, threshold, tags=chosen.scope.tags)
            found, scores = more | found, scores | more_scores
        fitting = [item_of(memory, score=scores.get(id)) for id, memory in found.items() if chosen.match(memory)]
        return {"results": fitting[:wanted]}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory, None if there is none."""
        try:
            return item_of(self._memory(memory_id), score=None)
        except MemoryNotFound:
            return None

    def get_all(
        self,
        /,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        limit: int | None = None,
        **unknown: Any,
    ) -> dict[str, Any]:
        """Return the memories that match filters, newest first. `limit` is an older name of `top_k`."""
        refuse_unknown("get_all", unknown)
        refuse(show_expired=show_expired)
        wanted, chosen = count_of(top_k if limit is None else limit), Filters(filters)
        matching = (memory for memory in listed(self._client, chosen.scope.user_id) if chosen.match(memory))
        return {"results": [item_of(memory) for _, memory in zip(range(wanted), matching, strict=False)]}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: object = UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Change the text of a memory, add to its metadata, or set or remove the day on which it ends.

        `data` is an older name of `text`. A fact whose text is changed becomes a memory of its own, with the same id,
        and loses its earlier values. Raises `MemoryNotFound` and `InvalidCall`.
        """
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is UNSET:
            raise InvalidCall("give at least one of text, metadata and expiration_date", field="text")
        changes: dict[str, Any] = {}
        if expiration_date is not UNSET:
            changes["expires_at"] = expiry_of(expiration_date)
        current = self._memory(memory_id)
        if text is not None and text != current.content:
            changes["content"] = text
        if metadata is not None or "content" in changes:
            custom = custom_metadata(metadata, fields_of(current))
            changes["metadata"] = changed_metadata(current, custom, text_changed="content" in changes)
        if "content" in changes and current.category is not None:
            self._rewrite(current, changes)
        elif changes:
            self._client.memories.update(current.id, user=current.owner_user_id, **changes)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Forget a memory for good. Raises `MemoryNotFound`."""
        user, stored_id = user_and_id(memory_id)
        forgotten = [self._client.forget(id, user=user) for id in (stored_id, REWRITTEN + stored_id)]
        if True not in forgotten:
            raise MemoryNotFound(f"there is no memory {memory_id}", field="memory_id")
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Forget all memories of a scope, and the messages that were added to it. Raises `InvalidCall`."""
        scope = scope_of(user_id, agent_id, run_id, hint="; `reset` forgets everything")
        for name in self._sessions(scope):
            self._client.sessions.forget(name, user=scope.user_id)
        chosen = Filters({name: value for name, value in scope._asdict().items() if value is not None})
        for memory in [memory for memory in listed(self._client, scope.user_id) if chosen.match(memory)]:
            self._client.forget(memory.id, user=scope.user_id)
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return the addition of a memory and the last change of its text; nothing for one that was deleted.

        The server keeps no earlier text, so `old_memory` is always None.
        """
        try:
            return history_of(self._memory(memory_id))
        except MemoryNotFound:
            return []

    def reset(self) -> None:
        """Erase everything of the agent in its workspace, for all users, even if other calls have added it.

        It needs a token with the scope `forget`. Raises `WaitTimeout` if the erasure takes more than five minutes: it
        goes on.
        """
        erasure = self._client.admin.erasures.create(agent=self._client.agent, workspace=self._client.workspace)
        deadline = time.monotonic() + _RESET_SECONDS
        while self._client.admin.erasures.get(erasure.id).state != "done":
            if time.monotonic() > deadline:
                follow = f"reverie.Reverie().admin.erasures.get({erasure.id!r}) follows it"
                raise WaitTimeout(f"the erasure goes on: {follow}")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Close the connections unless the client was given."""
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Self:
        """Use it as a context manager; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _search_memories(
        self, query: str, chosen: Filters, threshold: float | None, tags: list[str] | None = None
    ) -> tuple[dict[str, types.Memory], dict[str, float]]:
        response = self._client.memories.search(
            query, user=chosen.scope.user_id, limit=MAX_RESULTS, min_score=threshold, tags=tags or []
        )
        return {memory.id: memory for memory in response.results}, response.relevances

    def _sessions(self, scope: Scope) -> list[str]:
        """Return the sessions that hold messages of a scope."""
        sessions = self._client.sessions
        names = [
            session.id
            for status in ("active", "idle", "archived")
            for session in all_pages(sessions.list, user=scope.user_id, status=status)
        ]
        return [name for name in names if (found := scope_of_session(name)) is not None and scope.covers(found)]

    def _memory(self, memory_id: str) -> types.Memory:
        user, stored_id = user_and_id(memory_id)
        for id in (stored_id, REWRITTEN + stored_id):
            with suppress(NotFound):
                return self._client.memories.get(id, user=user)
        raise MemoryNotFound(f"there is no memory {memory_id}", field="memory_id")

    def _rewrite(self, fact: types.Memory, changes: Mapping[str, Any]) -> None:
        """Put a memory with another text in the place of a fact. Interrupted, it can be carried out again."""
        self._client.forget(REWRITTEN + fact.id, user=fact.owner_user_id)
        self._client.remember(
            changes["content"],
            id=REWRITTEN + fact.id,
            user=fact.owner_user_id,
            source=SOURCE,
            pinned=True,
            importance=fact.importance,
            tags=fact.tags,
            session=fact.session,
            metadata=changes["metadata"],
            expires_at=changes.get("expires_at", fact.expires_at),
        )
        self._client.forget(fact.id, user=fact.owner_user_id)


def _awaited(
    method: Callable[Concatenate[Memory, _P], _T], *, changes: bool = True
) -> Callable[Concatenate[AsyncMemory, _P], Coroutine[Any, Any, _T]]:
    """Return a method of `AsyncMemory` that does in a thread what one of `Memory` does, with its arguments and help."""

    @functools.wraps(method)
    async def call(self: AsyncMemory, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        bound = functools.partial(method, self._memory, *args, **kwargs)
        return await (settled(bound) if changes else asyncio.to_thread(bound))

    return call


class AsyncMemory:
    """The calls of mem0's `AsyncMemory`: those of `Memory`, awaited. Safe to share between tasks and event loops.

    A task that is cancelled during a change ends when the change has been made.
    """

    def __init__(self, client: Reverie | None = None, *, agent: str | None = None, **connection: Any) -> None:
        """Connect with the first call. Raises `TypeError` for a configuration of mem0: see `from_config`."""
        self._memory = Memory(client, agent=agent, **connection)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Return a memory with the arguments of `Reverie` that are under "reverie", as `Memory.from_config`."""
        return cls(**connection_of(config_dict))

    add = _awaited(Memory.add)
    search = _awaited(Memory.search, changes=False)
    get = _awaited(Memory.get, changes=False)
    get_all = _awaited(Memory.get_all, changes=False)
    update = _awaited(Memory.update)
    delete = _awaited(Memory.delete)
    delete_all = _awaited(Memory.delete_all)
    history = _awaited(Memory.history, changes=False)
    reset = _awaited(Memory.reset)

    def close(self) -> None:
        """Close the connections unless the client was given. As in mem0, it is not awaited."""
        self._memory.close()

    async def __aenter__(self) -> Self:
        """Use it as a context manager; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        self.close()


# A message is stored, and a memory indexed, within a second; a machine that is very busy takes longer.
_STORE_SECONDS: Final = 60.0
# Long enough where workers run. Where none run, the memory is stored, and searchable once they do.
_INDEX_SECONDS: Final = 5.0
# Another call may end the session meanwhile. Then this one reopens it and tries again: each reads what both stored.
_ATTEMPTS: Final = 5


def remember_each(
    client: Reverie, scope: Scope, messages: list[dict[str, Any]], custom: dict[str, Any], expires_at: datetime | None
) -> list[dict[str, Any]]:
    """Remember each message word for word, except system messages; return them in mem0's form."""
    kept = [message for message in messages if message["role"] != "system"]
    for message in kept:
        check_size(message["content"])
    results = []
    for number, message in enumerate(kept, start=1):
        memory = new_id()
        remember = functools.partial(
            client.remember,
            message["content"],
            id=memory,
            user=scope.user_id,
            source=SOURCE,
            pinned=True,  # no job merges or removes it
            tags=scope.tags,
            session=scope.session if scope.run_id is not None else None,
            metadata=metadata_of(scope, custom, message),
            expires_at=expires_at,
        )
        if number < len(kept):
            remember()
        else:
            with suppress(WaitTimeout):  # it is stored and will be indexed
                remember(wait="searchable", timeout_seconds=_INDEX_SECONDS)
        actor = {"actor_id": message.get("name"), "role": message["role"]}
        results.append({**_added(scope, memory, message["content"]), **actor})
    return results


def extract(
    client: Reverie, scope: Scope, messages: list[dict[str, Any]], custom: dict[str, Any], expires_at: datetime | None
) -> list[dict[str, Any]]:
    """Store messages in the session of a scope, let the server extract memories, and label and return these."""
    named = {new_id(): message for message in messages}
    drafts: list[Any] = [{"id": id, **message} for id, message in named.items()]
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
        client.memories.update(
            memory.id,
            user=scope.user_id,
            metadata=metadata_of(scope, custom),
            tags=list(dict.fromkeys([*memory.tags, *scope.tags]))[:MAX_TAGS],
            expires_at=msgspec.UNSET if expires_at is None else expires_at,
        )
        results.append(_added(scope, memory.id, memory.content))
    return results[::-1]


def _added(scope: Scope, stored_id: str, text: str) -> dict[str, Any]:
    return {"id": public_id(scope.user_id, stored_id), "memory": text, "event": "ADD"}


def _read_session(client: Reverie, scope: Scope) -> None:
    """Let the server extract memories from a session at once, by closing it."""
    for _ in range(_ATTEMPTS):
        try:
            client.sessions.close(scope.session, user=scope.user_id)
        except Conflict:  # another call has ended it
            client.sessions.start(scope.session, user=scope.user_id)
        else:
            return


def listed(client: Reverie, user: str | None, session: str | None = None) -> Iterator[types.Memory]:
    """Return the current memories of a user, or those of nobody, newest first."""
    found: Iterator[types.Memory] = all_pages(client.memories.list, user=user, owner_user_id=user, session=session)
    return (memory for memory in found if memory.owner_user_id == user)
