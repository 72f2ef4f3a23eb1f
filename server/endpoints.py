"""Serve declared calls: a module lists its endpoints; decoding, threads, errors and OpenAPI follow from each call.

    endpoints = Endpoints("recall")

    @endpoints.serves(Recall)
    def recall(services: Services, caller: Caller, call: Recall) -> RecallResponse:
        ...

A handler is a plain function that runs in a thread. It gets the validated call, and returns the result or raises. If a
handler would only call another function with its arguments, that function is named instead:

    endpoints.passes(GetSession, read_session, Services.store_of_session)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from memory.conversion import convert
from reverie.calls import Call, build, check, response_type, route_of, scope_of, validated
from reverie.contract import Scope
from reverie.errors import Rejected
from server.authorisation import (
    admitted,
    audited,
    creates_workspace,
    for_user,
    noting_refusals,
    require_creator,
    require_reach,
    require_scope,
)
from server.bodies import MAX_BODY_BYTES, body_bytes_of, decode
from server.caller import Caller, Subject, caller_of, decoded, principal_of, query_of
from server.responses import NamedRoute
from server.services import Services

_A = TypeVar("_A")
_C = TypeVar("_C", bound=Call[Any])
_T = TypeVar("_T")
_Handler = Callable[[Services, Caller, _C], Any]
# Returns an argument of a function to which a call is passed on.
Argument = Callable[[Services, Caller, Any], Any]
# The arguments that such a function can take besides the fields of the call, by the names of its parameters.
_ARGUMENTS: Final[Mapping[str, Argument]] = {
    "agent": lambda _services, caller, _call: caller.agent,
    "call": lambda _services, _caller, call: call,
    "now": lambda services, _caller, _call: services.runtime.now(),
    "workspace": lambda _services, caller, _call: caller.workspace,
}


@dataclass(frozen=True, slots=True)
class Statuses:
    """The HTTP statuses of the responses to a call: a function that chooses one, and what each of them means."""

    of: Callable[[Any], int]
    meanings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The handler of a call.

    `waits` returns whether a call waits for the workers: such calls have threads of their own.

    Tokens bound to a workspace may not make calls about the server, and tokens bound to agents may not make calls about
    a workspace, unless the handler limits itself to what the token allows (`limits_itself`).
    """

    kind: type[Call[Any]]
    handler: _Handler[Any]
    waits: Callable[[Any], bool]
    statuses: Statuses
    subject: Subject
    limits_itself: bool
    tag: str

    @property
    def scope(self) -> Scope:
        """The scope that the call needs."""
        return scope_of(self.kind)

    def answer(self, services: Services, caller: Caller, call: Call[Any]) -> Any:
        """Return the response to a call, which is recorded in the audit log if it belongs there.

        It reads stores, so it is never called in the event loop: a database that does not answer would hold up the
        requests of all. Raises `Forbidden` for a workspace that the caller may not create, and what the handler raises.
        """
        about = caller.workspace if self.subject != "server" else ""
        creates = bool(about) and creates_workspace(services, about, self.scope)
        if creates:
            require_creator(caller.principal)
        with (
            audited(services, caller, call, self.subject, creates=creates) as response,
            admitted(services, call, about, creates=creates),
        ):
            response.append(self.handler(services, caller, call))
        if self.scope == "forget":
            services.repeats.forget(caller)
        return response[0]


def _never(_: object) -> bool:
    return False


_DONE: Final = Statuses(lambda _: 200, {"200": "Done"})


class Endpoints:
    """The endpoints of one module; `tag` is their section of the API description, unless an endpoint names another.

    `arguments` are further arguments that functions of this subject can take, by the names of their parameters.
    """

    def __init__(self, tag: str, **arguments: Argument) -> None:
        self._tag = tag
        self._arguments = {**_ARGUMENTS, **arguments}
        self._endpoints: list[Endpoint] = []

    def serves(
        self,
        kind: type[_C],
        *,
        waits: Callable[[_C], bool] = _never,
        statuses: Statuses = _DONE,
        subject: Subject = "agent",
        limits_itself: bool = False,
        tag: str = "",
    ) -> Callable[[_Handler[_C]], _Handler[_C]]:
        """Register the decorated function as the handler of a call."""

        def add(handler: _Handler[_C]) -> _Handler[_C]:
            section = tag or self._tag
            self._endpoints.append(Endpoint(kind, handler, waits, statuses, subject, limits_itself, section))
            return handler

        return add

    def passes(
        self,
        kind: type[Call[Any]],
        function: Callable[..., Any],
        source: Argument,
        *,
        then: Callable[[Services, Any], Any] | None = None,
        **options: Any,
    ) -> None:
        """Pass a call on to a function, whose first argument is what `source` returns: a store, or memories in several.

        Its other parameters are named like fields of the call, or like one of the further arguments. It returns the
        response, or a record with the response's fields, or the value of the only field that the response requires.
        If `source` returns None, because nothing has been stored in the workspace, the response is empty. With `then`,
        all of this holds for what `then` makes of the function's result. `options` are those of `serves`. Raises
        `TypeError` for a parameter with any other name.
        """
        given = self._arguments_of(kind, function)

        def handler(services: Services, caller: Caller, call: Any) -> Any:
            first = source(services, caller, call)
            if first is None:
                return response_type(kind)(
                    **{name: (get_origin(hint) or hint)() for name, hint in _required(kind).items()}
                )
            arguments = {name: read(services, caller, call) for name, read in given.items()}
            found = function(first, **arguments)
            return _response(kind, found if then is None else then(services, found))

        handler.__wrapped__ = function  # type: ignore[attr-defined]  # as `functools.wraps` notes it
        self.serves(kind, **options)(handler)

    def _arguments_of(self, kind: type[Call[Any]], function: Callable[..., Any]) -> dict[str, Argument]:
        found: dict[str, Argument] = {}
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            name = parameter.name
            if name in self._arguments:
                found[name] = self._arguments[name]
            elif name in kind.__struct_fields__:
                found[name] = lambda _services, _caller, call, name=name: getattr(call, name)  # type: ignore[misc]
            elif parameter.default is parameter.empty:
                raise TypeError(f"{kind.__name__} has no {name!r} for {function.__name__}")
        return found

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def routes(self, services: Services) -> Iterator[NamedRoute]:
        """Yield the routes of all endpoints."""
        for endpoint in self._endpoints:
            route = route_of(endpoint.kind)
            yield NamedRoute(route.path, _route_function(endpoint, services), route.method)


@cache
def _required(kind: type[Call[Any]]) -> dict[str, Any]:
    """Return the types of the fields that the response to a call requires."""
    return {field.name: field.type for field in msgspec.structs.fields(response_type(kind)) if field.required}


def _response(kind: type[Call[Any]], found: Any) -> Any:
    response, required = response_type(kind), list(_required(kind))
    if isinstance(found, response):
        return found
    return response(**{required[0]: found}) if len(required) == 1 else convert(found, response)


def _route_function(endpoint: Endpoint, services: Services) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        with noting_refusals(services, request, endpoint.kind):
            caller = checked_caller(endpoint, request, services)
            call = await _read(endpoint.kind, request, services)
            call = permitted(services, caller, call, body_bytes=body_bytes_of(request))
            key = services.repeats.key_of(request, caller, endpoint.kind)

            def answer() -> bytes:
                return msgspec.json.encode(endpoint.answer(services, replace(caller, request=key), call))

            def work() -> bytes:
                return services.repeats.answer(key, endpoint.kind, answer) if key else answer()

            body = await in_threads(endpoint, services, caller, call, work)
        return Response(body, status_code=endpoint.statuses.of(call), media_type="application/json")

    return respond


def permitted(services: Services, caller: Caller, call: _C, *, body_bytes: int) -> _C:
    """Return a call limited to the user of its caller, and take it from the rates of the token.

    Raises `Forbidden` and `Limited`.
    """
    call = for_user(call, caller)
    services.rates.take(caller.principal, {**call.amounts(), "bytes": body_bytes})
    return call


async def in_threads(
    endpoint: Endpoint, services: Services, caller: Caller, call: Call[Any], work: Callable[[], _T]
) -> _T:
    """Run the work of a call in the threads for calls of its kind. Raises what the work raises, and `Unavailable`."""
    if endpoint.waits(call):
        return await services.threads.wait(work)
    return await services.threads.run(work, workspace=caller.workspace if endpoint.subject != "server" else "")


def checked_caller(endpoint: Endpoint, request: Request, services: Services) -> Caller:
    """Return the caller of a request. Raises `Forbidden` for what its token does not allow, and `Rejected`.

    Checks that need to read a store follow later: see `Endpoint.answer`.
    """
    require_scope(principal_of(request), endpoint.scope)
    if not endpoint.limits_itself:
        require_reach(principal_of(request), endpoint.subject)
    return caller_of(request, subject=endpoint.subject, workspace=services.runtime.settings.workspace)


async def _read(kind: type[_C], request: Request, services: Services) -> _C:
    """Return the call of a request. Raises `Rejected`, `TooLarge` and `Malformed`."""
    route = route_of(kind)
    in_path = {name: decoded(str(request.path_params[name]).encode(), name) for name in route.path_fields}
    if not route.has_body:
        known = tuple(name for name in kind.__struct_encode_fields__ if name not in in_path)
        query = query_of(request, known, _sequences(kind))
        for name in _booleans(kind) & query.keys():
            if query[name] not in ("true", "false"):
                raise Rejected(f"{name} is {str(query[name])[:80]!r}; it must be true or false", field=name)
        return build(kind, {**query, **in_path}, from_text=True)
    query_of(request)
    limit_bytes = max(MAX_BODY_BYTES, kind.body_bytes)
    if not in_path:
        return await services.bodies.decoded(request, lambda body: check(decode(body, kind)), limit_bytes=limit_bytes)
    arguments = await services.bodies.decoded(
        request, lambda body: decode(body, dict[str, Any]), limit_bytes=limit_bytes
    )
    for name in in_path.keys() & arguments.keys():
        raise Rejected(f"{name} is in the path: leave it out of the body", field=name)
    # Numbers in a path are text; the body holds them as numbers.
    numbers = {name: int(in_path[name]) for name in _integers(kind) & in_path.keys() if in_path[name].isdecimal()}
    return build(kind, {**arguments, **in_path, **numbers}, from_text=not arguments)


@cache
def _booleans(kind: type[Call[Any]]) -> frozenset[str]:
    fields = msgspec.structs.fields(kind)
    return frozenset(field.encode_name for field in fields if isinstance(field.default, bool))


@cache
def _integers(kind: type[Call[Any]]) -> frozenset[str]:
    fields = msgspec.structs.fields(kind)
    return frozenset(field.encode_name for field in fields if int in (field.type, *get_args(field.type)))


@cache
def _sequences(kind: type[Call[Any]]) -> frozenset[str]:
    """Return the arguments that may be given several times in a query string."""
    fields = msgspec.structs.fields(kind)
    return frozenset(field.encode_name for field in fields if "Sequence" in str(field.type))


class BoundToRequest:
    """Sends calls within this process, as the caller that a request's token and headers name. For MCP and pages.

    Scopes, bounds of the token, quotas, rates, threads and the audit log are those of the routes below /v1. With
    `notes_recalls` false, the results of its recalls do not count as recalled.
    """

    def __init__(
        self, services: Services, endpoints: Mapping[Any, Endpoint], request: Request, *, notes_recalls: bool = True
    ) -> None:
        self._services = services
        self._endpoints = endpoints
        self._request = request
        self._notes_recalls = notes_recalls
        # Counted once for each request, however many calls it makes.
        self._bytes = body_bytes_of(request)

    @property
    def user(self) -> str | None:
        """The user that the token or the header X-Reverie-User names. Raises `Rejected` and `Forbidden`."""
        workspace = self._services.runtime.settings.workspace
        return caller_of(self._request, subject="agent", workspace=workspace).user

    async def send(self, call: Call[_A]) -> _A:
        """Return the response to a call. Raises what the same call over HTTP does."""
        response: _A = await self.carry_out(call, self._endpoints[type(call)].handler)
        return response

    async def carry_out(self, call: _C, handler: Callable[[Services, Caller, _C], _T]) -> _T:
        """Carry out a call by another handler than its own; return its result. Raises what the call over HTTP does."""
        services, checked = self._services, validated(call)
        endpoint = replace(self._endpoints[type(call)], handler=handler)
        with noting_refusals(services, self._request, endpoint.kind):
            caller = checked_caller(endpoint, self._request, services)
            if not self._notes_recalls:
                caller = replace(caller, notes_recalls=False)
            taken, self._bytes = self._bytes, 0
            own = permitted(services, caller, checked, body_bytes=taken)
            response: _T = await in_threads(
                endpoint, services, caller, own, lambda: endpoint.answer(services, caller, own)
            )
        return response
