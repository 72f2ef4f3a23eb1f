"""Derive the methods of both clients from declared calls: those of `Reverie` return, those of `AsyncReverie` await.

    class RecallCalls:
        recall = method(Recall)
        recall_events = method(ListRecallEvents, lambda answer: answer.recall_events)

Such a mixin is a base class of both clients. Type checkers see the arguments of the struct and the type of its
response; at run time a method becomes a real function when it is first used, so `help` and `inspect` work too.
asyncio, inspect and threads are imported when they are first needed.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, get_type_hints, overload

from reverie.calls import Call, refused, validated
from reverie.config import resolve_config
from reverie.connection import Connection
from reverie.errors import Rejected

# Maximum concurrent calls of one asyncio client: each takes a thread until its response has arrived.
_THREADS: Final = 8

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_A = TypeVar("_A")
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Method(Generic[_P, _T]):
    """A descriptor that turns a function of a connection into a method of both clients; see also `method`.

    `sends` is the declared call that the method sends; with `described_by_call` it has the arguments of that call, else
    those of the function.
    """

    def __init__(
        self,
        run: Callable[Concatenate[Connection, _P], _T],
        sends: Callable[..., Any],
        *,
        described_by_call: bool = False,
    ) -> None:
        self.sends = sends
        self._run = run
        self._described_by = sends if described_by_call else run
        self._name = ""

    def __set_name__(self, _: type, name: str) -> None:
        """Store the name of the method."""
        self._name = name

    @overload
    def __get__(self, client: SyncClient, owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Any: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Replace this descriptor by a function in the client's class on first use, and return the bound method."""
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
    """Return a method that sends a call and takes the arguments of its struct.

    `result` converts the response to what the method returns. The method raises `Rejected` for invalid arguments, and
    whatever the server raised.
    """

    def run(connection: Connection, *args: Any, **kwargs: Any) -> Any:
        checked = validated(call(*args, **kwargs))
        try:
            response = connection.send(checked)
        except Rejected as error:
            raise refused(error, type(checked)) from None
        return response if result is None else result(response)

    return Method(run, call, described_by_call=True)


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
        hints = get_type_hints(described_by)  # without the metadata of Annotated
        parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    else:
        parameters = parameters[1:]
    return inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *parameters])


class _Client:
    """The base of both clients: one connection, configured by arguments or the environment."""

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
    """A client with blocking methods. Safe to share between threads and to use after a fork."""

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
    """A client for asyncio: its calls run in its own small thread pool.

    Cancelling a call stops waiting for it; the request may still reach the server.
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
