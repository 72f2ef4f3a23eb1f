"""Make calls into methods of both clients, from one description: `Reverie` returns, `AsyncReverie` can be awaited.

    class RecallCalls:
        recall = method(Recall)
        recall_events = method(ListRecallEvents, lambda answer: answer.recall_events)

A mixin such as this one is a base of both clients. Type checkers see the arguments of the struct and the type of its
answer; at run time each client's class gets a real function when it is first used, for `help` and `inspect` too.
asyncio, inspect and threads are imported only by who uses them.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, get_type_hints, overload

from reverie.calls import Call, validated
from reverie.config import resolve_config
from reverie.connection import Connection

# Calls of one asyncio client at a time; a call that waits until its messages are stored takes a thread for as long.
_THREADS: Final = 8

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_A = TypeVar("_A")
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Method(Generic[_P, _T]):
    """A function of a connection that becomes a method of both clients; `method` makes one of a call."""

    def __init__(self, run: Callable[Concatenate[Connection, _P], _T], call: Callable[..., Any] | None = None) -> None:
        self._run = run
        self._described_by = call or run
        self._name = ""

    def __set_name__(self, _: type, name: str) -> None:
        """Remember the name of the method."""
        self._name = name

    @overload
    def __get__(self, client: SyncClient, owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Any: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Give the client's class a function in place of this description, when it is first used."""
        make = _async_function if issubclass(owner, AsyncClient) else _sync_function
        function = make(self._run)
        function.__name__, function.__qualname__ = self._name, f"{owner.__qualname__}.{self._name}"
        function.__doc__, function.__module__ = self._described_by.__doc__, owner.__module__
        function.__signature__ = _signature_of(self._described_by)  # type: ignore[attr-defined]  # read by `inspect`
        setattr(owner, self._name, function)
        return getattr(owner if client is None else client, self._name)


@overload
def method(call: Callable[_P, Call[_A]]) -> Method[_P, _A]: ...
@overload
def method(call: Callable[_P, Call[_A]], result: Callable[[_A], _T]) -> Method[_P, _T]: ...
def method(call: Any, result: Callable[[Any], Any] | None = None) -> Any:
    """Return a method that sends a call, whose arguments are those of its struct.

    `result` takes from the answer what the method returns. Raises `Rejected` for arguments at fault, and what the
    server raised.
    """

    def run(connection: Connection, *args: Any, **kwargs: Any) -> Any:
        answer = connection.send(validated(call(*args, **kwargs)))
        return answer if result is None else result(answer)

    return Method(run, call)


def _sync_function(run: Callable[..., Any]) -> Callable[..., Any]:
    def function(self: SyncClient, /, *args: Any, **kwargs: Any) -> Any:
        return run(self.connection, *args, **kwargs)

    return function


def _async_function(run: Callable[..., Any]) -> Callable[..., Any]:
    async def function(self: AsyncClient, /, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        context = contextvars.copy_context()
        bound = functools.partial(context.run, functools.partial(run, self.connection, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    return function


def _signature_of(described_by: Callable[..., Any]) -> Any:
    """Return the signature of a call's struct, or of a function whose first argument is the connection."""
    import inspect

    parameters = list(inspect.signature(described_by).parameters.values())
    if isinstance(described_by, type):
        hints = get_type_hints(described_by)  # without the descriptions that their annotations carry
        parameters = [one.replace(annotation=hints[one.name]) for one in parameters]
    else:
        parameters = parameters[1:]
    return inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *parameters])


class _Client:
    """What both clients are made of: one connection, made from arguments or the environment."""

    def __init__(
        self,
        agent: str | None = None,
        *,
        url: str | None = None,
        broker: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        config = resolve_config(
            agent=agent,
            url=url,
            broker=broker,
            token=token,
            workspace=workspace,
            prefix=prefix,
            timeout_seconds=timeout_seconds,
        )
        self.agent = config.agent
        self.workspace = config.workspace
        self.connection = Connection(config)


class SyncClient(_Client):
    """A client whose methods return when the call is done. Safe to share between threads and to use after a fork."""

    def __enter__(self) -> Self:
        """Use the client as a context manager; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        self.connection.close()


class AsyncClient(_Client):
    """A client for asyncio: each call runs in a small thread pool of its own and can be awaited.

    A cancelled call is no longer waited for; what it sent may have arrived.
    """

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(_THREADS, thread_name_prefix="reverie")

    async def __aenter__(self) -> Self:
        """Use the client as a context manager; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Wait for the calls in progress, then close all connections. The client cannot be used afterwards."""
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self.connection.close()
