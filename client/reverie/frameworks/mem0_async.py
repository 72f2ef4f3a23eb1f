"""The class for asyncio that answers mem0's calls: `AsyncMemory`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

from reverie.client import Reverie
from reverie.frameworks.mem0_arguments import connection_of, refuse
from reverie.frameworks.mem0_memory import UNSET, Memory
from reverie.frameworks.settling import settled


class AsyncMemory:
    """The calls of mem0's `AsyncMemory`: those of `Memory`, awaited. Safe to share between tasks and event loops.

    A task that is cancelled during a change ends when the change has been made.
    """

    def __init__(self, client: Reverie | None = None, *, agent: str | None = None, **connection: Any) -> None:
        """Open nothing yet. Raises `TypeError` for a configuration of mem0: see `from_config`."""
        self._memory = Memory(client, agent=agent, **connection)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Return a memory with the arguments of `Reverie` that are under "reverie", as `Memory.from_config`."""
        return cls(**connection_of(config_dict))

    async def add(
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
        """Do what `Memory.add` does. `llm` is refused: the server has a language model of its own."""
        refuse(llm=llm)
        return await settled(
            lambda: self._memory.add(
                messages,
                user_id=user_id,
                agent_id=agent_id,
                run_id=run_id,
                metadata=metadata,
                timestamp=timestamp,
                expiration_date=expiration_date,
                infer=infer,
                memory_type=memory_type,
                prompt=prompt,
            )
        )

    async def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Do what `Memory.search` does."""
        return await asyncio.to_thread(
            self._memory.search, query, top_k=top_k, filters=filters, threshold=threshold, rerank=rerank, **options
        )

    async def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory, None if there is none."""
        return await asyncio.to_thread(self._memory.get, memory_id)

    async def get_all(
        self, *, filters: Mapping[str, Any] | None = None, top_k: int = 20, **options: Any
    ) -> dict[str, Any]:
        """Do what `Memory.get_all` does."""
        return await asyncio.to_thread(self._memory.get_all, filters=filters, top_k=top_k, **options)

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: object = UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Do what `Memory.update` does."""
        return await settled(lambda: self._memory.update(memory_id, text, metadata, expiration_date, data))

    async def delete(self, memory_id: str) -> dict[str, str]:
        """Forget a memory for good. Raises `MemoryNotFound`."""
        return await settled(lambda: self._memory.delete(memory_id))

    async def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Forget all memories of a scope, and the messages that were added to it."""
        return await settled(lambda: self._memory.delete_all(user_id, agent_id, run_id))

    async def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Do what `Memory.history` does."""
        return await asyncio.to_thread(self._memory.history, memory_id)

    async def reset(self) -> None:
        """Do what `Memory.reset` does."""
        await settled(self._memory.reset)

    def close(self) -> None:
        """Close the connections unless the client was given. As in mem0, it is not awaited."""
        self._memory.close()

    async def __aenter__(self) -> Self:
        """Use it as a context manager; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        self.close()
