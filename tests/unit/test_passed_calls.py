"""Calls that endpoints pass on: each function gets what it takes, and what it returns becomes the response."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from reverie.scheduling.calls import ListReminders
from reverie.scheduling.types import ReminderPage
from reverie.sessions.calls import GetSession, ListAgents
from reverie.sessions.types import AgentList, AgentSummary
from server.app import endpoints as all_endpoints
from server.endpoints import Endpoint, Endpoints
from server.services import Services

NOBODY: Any = None
PASSED = {one.kind.__name__: one for one in all_endpoints() if hasattr(one.handler, "__wrapped__")}


def plain(hint: Any) -> Any:
    """Return a type that equals another one if a value fits both: words of a closed set are texts, lists sequences."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return frozenset(map(plain, arguments))
    if origin is Literal:
        return str
    return (Sequence, *map(plain, arguments)) if origin in (list, Sequence) else hint


def passed(kind: Any, function: Any, source: Any) -> Endpoint:
    endpoints = Endpoints("x")
    endpoints.passes(kind, function, lambda *_: source)
    (found,) = endpoints
    return found


@pytest.mark.parametrize("name", PASSED)
def test_a_function_takes_the_fields_of_its_call_as_they_are(name: str) -> None:
    """Given a call that is passed on, then a parameter that is named like a field has the type of the field."""
    kind, function = PASSED[name].kind, PASSED[name].handler.__wrapped__  # type: ignore[attr-defined]
    fields, parameters = get_type_hints(kind), get_type_hints(function)
    shared = [one for one in inspect.signature(function).parameters if one in kind.__struct_fields__]
    assert {one: plain(parameters[one]) for one in shared} == {one: plain(fields[one]) for one in shared}


def test_a_parameter_that_nothing_is_given_for_is_refused_at_once() -> None:
    """Given a function that takes what its call does not have, then naming it is an error, not the first request."""

    def read(store: object, *, agent: str, colour: str) -> None: ...

    with pytest.raises(TypeError, match="GetSession has no 'colour' for read"):
        Endpoints("x").passes(GetSession, read, Services.store_of_session)


def test_a_list_becomes_the_response_that_requires_it() -> None:
    """Given a function that returns rows, or the whole response, then the response has the rows."""
    rows = [AgentSummary(name="ana", sessions=1, memories=2)]
    for found in (rows, AgentList(agents=rows)):
        endpoint = passed(ListAgents, lambda store, found=found: found, "a store")
        assert endpoint.handler(NOBODY, NOBODY, ListAgents()) == AgentList(agents=rows)


def test_without_a_store_the_response_is_empty() -> None:
    """Given that nothing has been stored, then the function is not called, and there are no rows and no number."""
    endpoint = passed(ListReminders, pytest.fail, None)
    assert endpoint.handler(NOBODY, NOBODY, ListReminders()) == ReminderPage(reminders=[], total=0)
