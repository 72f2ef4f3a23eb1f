"""The calls for what is known, for asyncio: those of `MemoryCalls`, each awaited in a thread of the client's pool."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from reverie.memories.memories import MemoryCalls

if TYPE_CHECKING:
    from reverie.client import Reverie

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _awaited(
    call: Callable[Concatenate[MemoryCalls, _P], _R],
) -> Callable[Concatenate[AsyncMemoryCalls, _P], Coroutine[Any, Any, _R]]:
    """The same call, its arguments and its answer, to be awaited."""

    @functools.wraps(call)
    async def awaited(self: AsyncMemoryCalls, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await self._run(call, self._sync, *args, **kwargs)

    return awaited


class AsyncMemoryCalls:
    """`remember`, `forget` and their relatives, for a client that runs calls in threads."""

    _sync: Reverie
    if TYPE_CHECKING:

        def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
            """Run a call of the other client in a thread."""

    remember = _awaited(MemoryCalls.remember)
    memory = _awaited(MemoryCalls.memory)
    memories = _awaited(MemoryCalls.memories)
    search_memories = _awaited(MemoryCalls.search_memories)
    update_memory = _awaited(MemoryCalls.update_memory)
    forget = _awaited(MemoryCalls.forget)
    memory_stats = _awaited(MemoryCalls.memory_stats)
    set_fact = _awaited(MemoryCalls.set_fact)
    fact = _awaited(MemoryCalls.fact)
    facts = _awaited(MemoryCalls.facts)
    fact_history = _awaited(MemoryCalls.fact_history)
    forget_fact = _awaited(MemoryCalls.forget_fact)
    add_note = _awaited(MemoryCalls.add_note)
    update_note = _awaited(MemoryCalls.update_note)
    note = _awaited(MemoryCalls.note)
    notes = _awaited(MemoryCalls.notes)
    delete_note = _awaited(MemoryCalls.delete_note)
