"""Declare a call once: a struct with its arguments, its route and the type of its response.

    class Recall(Queried[RecallResponse], kw_only=True, frozen=True):
        \"\"\"Return what matches a query, best first.\"\"\"

        route: ClassVar = "POST /v1/recall"
        limit: Annotated[int, Meta(ge=1, le=100, description="Return at most this many.")] = 5

The methods of both clients (`recall = method(Recall)`), the HTTP request and its validation, the route of the server,
its OpenAPI description, and the options of the command line are derived from it. Arguments named in the route's path
are sent there, others in the query string of GET and DELETE, and in the JSON body of all other methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta

from reverie.clock import in_seconds
from reverie.contract import Scope
from reverie.decoding import convert
from reverie.errors import Rejected
from reverie.fields import Limit, Offset, Query, SessionId, UserId, check_fields

_PATH_FIELD: Final = re.compile(r"\{(\w+)\}")

_A = TypeVar("_A")


# The resources that a token's rates limit.
Resource: TypeAlias = Literal["messages", "bytes", "memories", "schedules"]


class Route(NamedTuple):
    """The route of a call: HTTP method, path with its fields in braces, and the names of these fields."""

    method: str
    path: str
    path_fields: tuple[str, ...]

    @property
    def has_body(self) -> bool:
        """Return whether arguments are sent in a JSON body; otherwise they are in the query string."""
        return self.method not in ("GET", "DELETE")


class Call(msgspec.Struct, Generic[_A], frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A call and its arguments; the type parameter is the type of the response."""

    route: ClassVar[str] = ""
    # The scope that a token needs; None for the scope that follows from the route's method: see `scope_of`.
    required_scope: ClassVar[Scope | None] = None
    # The amounts that the call adds, unless its arguments decide them: see `amounts`.
    adds: ClassVar[Mapping[Resource, int]] = {}
    # Whether the call only changes what is stored already, so that no quota refuses it.
    changes_stored: ClassVar[bool] = False
    # How large the body may be, in bytes, if that is more than the 4 MiB of other calls.
    body_bytes: ClassVar[int] = 0
    # How many seconds the client waits for the response; None for its default timeout.
    response_timeout_seconds: ClassVar[float | None] = None

    # Whether sending the call twice has the same effect and result as once: then a repetition needs no key.
    is_idempotent: ClassVar[bool] = False
    # Whether the response holds a secret: for a repeated request the server keeps it in memory, never in the broker.
    response_is_secret: ClassVar[bool] = False

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much of each resource the call adds, which counts for the rates of a token and for quotas."""
        return self.adds

    def checked(self) -> Self:
        """Return the call normalised. Overridden to check rules that span several arguments. Raises `Rejected`."""
        return self

    def http_timeout_seconds(self) -> float | None:
        """Return how many seconds the client waits for the response; None for its default timeout."""
        return self.response_timeout_seconds


class OfUser(Call[_A], kw_only=True, frozen=True):
    """A call that returns or changes content of users: what `user` may see, by default the user of the session."""

    user: UserId | None = None


class OfOneOrAll(OfUser[_A], kw_only=True, frozen=True):
    """A call about what belongs to `user` or to nobody, or with `all_users` to anybody."""

    # The scope that a token needs for `all_users`; the token must not be bound to a user.
    all_users_scope: ClassVar[Scope] = "operate"
    all_users: Annotated[
        bool, Meta(description="Include content of all users and of nobody; for operators and deliveries.")
    ] = False


class InSession(OfUser[_A], frozen=True):
    """A call about one session."""

    session: SessionId


class Queried(OfUser[_A], frozen=True):
    """A call with a search query."""

    query: Query


class Paged(Call[_A], frozen=True):
    """A call that returns a list page by page."""

    limit: Limit = 50
    offset: Offset = 0


_C = TypeVar("_C", bound=Call[Any])


def validated(call: _C) -> _C:
    """Return a call created in this process, validated and normalised. Raises `Rejected` naming the argument."""
    try:
        return check(converted(call))
    except Rejected as error:
        raise renamed(error, argument_names(type(call))) from None


def refused(error: Rejected, kind: type[Call[Any]]) -> Rejected:
    """Return the server's refusal of a call with the argument names that the caller used.

    A JSON name that is an ordinary word, such as `id`, stays in the text, where it may mean the word.
    """
    names = argument_names(kind)
    found = renamed(error, {name: field for name, field in names.items() if "_" in name})
    found.field = names.get(found.field, found.field)
    return found


@cache
def argument_names(kind: type[Call[Any]]) -> dict[str, str]:
    """Return the argument names of a call by their JSON names, where the two differ."""
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return {name: field for name, field in names if name != field}


def converted(call: _C) -> _C:
    """Return a call with its arguments converted to their types. Raises `Rejected` for a wrong type or range."""
    names = zip(call.__struct_encode_fields__, call.__struct_fields__, strict=True)
    arguments = {name: _plain(value) for name, field in names if (value := getattr(call, field)) is not UNSET}
    return convert(arguments, type(call), name="body")


def renamed(error: Rejected, names: Mapping[str, str]) -> Rejected:
    """Return the error itself, with JSON field names replaced by the argument names that the caller used."""
    error.args = (re.sub(r"\w+", lambda word: names.get(word.group(), word.group()), str(error)),)
    error.field = names.get(error.field, error.field)
    return error


def build(kind: type[_C], raw: Mapping[str, Any], *, from_text: bool = False) -> _C:
    """Return a call from decoded JSON, or with `from_text` from the texts of a query string. Raises `Rejected`."""
    return check(convert(raw, kind, name="body", from_text=from_text))


def check(call: _C) -> _C:
    """Return a decoded call with every argument checked and normalised. Raises `Rejected`."""
    return check_fields(call).checked()


@cache
def route_of(kind: type[Call[Any]]) -> Route:
    """Return the route of a call."""
    method, _, path = kind.route.partition(" ")
    return Route(method, path, tuple(_PATH_FIELD.findall(path)))


def scope_of(kind: type[Call[Any]]) -> Scope:
    """Return the scope that a call needs: by default read for GET, forget for DELETE, and write for all others."""
    defaults: Mapping[str, Scope] = {"GET": "read", "DELETE": "forget"}
    return kind.required_scope or defaults.get(route_of(kind).method, "write")


@cache
def is_repeatable(kind: type[Call[Any]]) -> bool:
    """Return whether a call changes something, and is carried out once only if it is repeated with the same key."""
    return route_of(kind).method != "GET" and scope_of(kind) != "read" and not kind.is_idempotent


@cache
def response_type(kind: type[Call[Any]]) -> type:
    """Return the type of a call's response, the argument of `Call[...]`."""
    for base in (base for parent in kind.__mro__ for base in getattr(parent, "__orig_bases__", ())):
        for argument in get_args(base):
            if isinstance(argument, type):
                return argument
    raise TypeError(f"{kind.__name__} does not declare its response: write Call[Response]")


def _plain(value: Any) -> Any:
    """Return an argument as JSON values: a timedelta as seconds, a date as text, iterables as lists."""
    if isinstance(value, timedelta):
        return in_seconds(value)
    if isinstance(value, date):
        if isinstance(value, datetime) and value.tzinfo is not None:
            with suppress(OverflowError):  # out of range, which its check says
                value = value.astimezone(UTC)
        return value.isoformat()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return value
    return [item.item() if hasattr(item, "item") else item for item in value]
