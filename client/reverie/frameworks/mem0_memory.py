"""The blocking class that answers mem0's calls: `Memory`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from reverie.client import Reverie
from reverie.errors import NotFound, WaitTimeout
from reverie.fields import MAX_PAGE
from reverie.frameworks.mem0_adding import extract, listed, remember_each
from reverie.frameworks.mem0_arguments import connection_of, count_of, refuse, refuse_unknown
from reverie.frameworks.mem0_filters import Filters
from reverie.frameworks.mem0_records import (
    REWRITTEN,
    SOURCE,
    InvalidCall,
    MemoryNotFound,
    Scope,
    changed_metadata,
    custom_metadata,
    expiry_of,
    fields_of,
    history_of,
    item_of,
    messages_of,
    scope_of,
    scope_of_session,
    user_and_id,
)
from reverie.memories import types
from reverie.recall.calls import MAX_RESULTS

UNSET: Final[Any] = object()
# An erasure reads every file of the store for what is left.
_RESET_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.1


class Memory:
    """The calls of mem0's `Memory`, on the memories of an agent of Reverie. Safe to share between threads.

    It takes a `client`, or the arguments of `Reverie`; what is left out is read from the environment. `user_id` is an
    end user, whom the server keeps apart from all others; `agent_id` and `run_id` are labels, as in mem0.
    """

    def __init__(self, client: Reverie | None = None, *, agent: str | None = None, **connection: Any) -> None:
        """Open nothing yet. Raises `TypeError` for a configuration of mem0: see `from_config`."""
        if client is not None and not isinstance(client, Reverie):
            raise TypeError(f"client must be a reverie.Reverie, not {type(client).__name__}; see Memory.from_config")
        if client is not None and (agent is not None or connection):
            raise TypeError("client has an agent and a connection already: give either a client or these")
        self._owns_client = client is None
        self._client = client if client is not None else Reverie(agent, **connection)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Return a memory with the arguments of `Reverie` that are under "reverie" in a configuration.

        Raises `InvalidCall` for what mem0 sets up in its own process and Reverie's server has of its own.
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
    ) -> dict[str, Any]:
        """Remember what follows from messages, or with `infer=False` each message as it is; return what was added.

        With `infer`, the messages are stored in a session and the server extracts memories from those of users before
        this returns. Without, system messages are left out. Raises `InvalidCall`, `Unavailable` and `WaitTimeout`.
        """
        refuse(timestamp=timestamp, memory_type=memory_type, prompt=prompt)
        scope = scope_of(user_id, agent_id, run_id)
        expires_at = expiry_of(expiration_date)
        custom = custom_metadata(metadata, scope._asdict())
        checked = messages_of(messages)
        if infer:
            return {"results": extract(self._client, scope, checked, custom, expires_at)}
        return {"results": remember_each(self._client, scope, checked, custom, expires_at)}

    def search(
        self,
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
        found, scores = self._found(query, chosen, threshold)
        if len(found) == MAX_RESULTS and chosen.scope.tags:
            more, more_scores = self._found(query, chosen, threshold, tags=chosen.scope.tags)
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
            self._client.update_memory(current.id, user=current.owner_user_id, **changes)
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
            self._client.forget_session(name, user=scope.user_id)
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
        """Erase everything of the agent in its workspace, for all users, also what was not added by these calls.

        It needs a token with the scope `forget`. Raises `WaitTimeout` if the erasure takes more than five minutes: it
        goes on.
        """
        erasure = self._client.erase(agent=self._client.agent, workspace=self._client.workspace)
        deadline = time.monotonic() + _RESET_SECONDS
        while self._client.erasure(erasure.id).state != "done":
            if time.monotonic() > deadline:
                raise WaitTimeout(f"the erasure goes on: reverie.Reverie().erasure({erasure.id!r}) follows it")
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

    def _found(
        self, query: str, chosen: Filters, threshold: float | None, tags: list[str] | None = None
    ) -> tuple[dict[str, types.Memory], dict[str, float]]:
        response = self._client.search_memories(
            query, user=chosen.scope.user_id, limit=MAX_RESULTS, min_score=threshold, tags=tags or []
        )
        return {memory.id: memory for memory in response.results}, response.relevances

    def _sessions(self, scope: Scope) -> list[str]:
        """Return the sessions that hold messages of a scope."""
        names: list[str] = []
        for status in ("active", "idle", "archived"):
            offset = 0
            while page := self._client.sessions(user=scope.user_id, status=status, limit=MAX_PAGE, offset=offset):
                names += [session.id for session in page]
                offset += MAX_PAGE
        return [name for name in names if (found := scope_of_session(name)) is not None and scope.covers(found)]

    def _memory(self, memory_id: str) -> types.Memory:
        user, stored_id = user_and_id(memory_id)
        for id in (stored_id, REWRITTEN + stored_id):
            with suppress(NotFound):
                return self._client.memory(id, user=user)
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
