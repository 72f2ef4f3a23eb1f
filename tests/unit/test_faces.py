"""Every declared call has the same faces: a method of both clients, a route of the server, and its description."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
import re
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, get_origin, get_type_hints

import pytest
import typer.main

import reverie
from cli.application import application
from cli.commands import COMMANDS, import_command
from reverie import AsyncReverie, Reverie
from reverie.calls import Call, response_type, route_of
from reverie.client import OLD_NAMES
from reverie.types import ListResult
from server.app import endpoints
from support.every_call import client_methods


def _declared(kind: type[Call[Any]] = Call) -> set[type[Call[Any]]]:
    """Return all calls with a route that the modules of the client declare."""
    for module in pkgutil.walk_packages(reverie.__path__, "reverie."):
        if module.name.rpartition(".")[2].endswith("calls"):
            importlib.import_module(module.name)
    found = {kind} if kind.route and kind.__module__.startswith("reverie.") else set()
    return found.union(*(_declared(below) for below in kind.__subclasses__()))


def test_every_call_is_a_method_of_the_clients() -> None:
    """Given the declared calls, then each is sent by exactly one method of the clients."""
    sent = Counter(method.sends for method in client_methods().values())
    assert set(sent) == _declared()
    assert set(sent.values()) == {1}


@pytest.mark.parametrize("client", [Reverie, AsyncReverie])
def test_both_clients_have_every_method(client: type) -> None:
    """Given the methods, then both clients have each of them with its documentation and without an open argument."""
    for name in client_methods():
        method = attrgetter(name)(client)
        assert method.__doc__, name
        assert method.__qualname__.startswith("Async") == (client is AsyncReverie), name
        kinds = {parameter.kind for parameter in inspect.signature(method).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}, name
        assert inspect.iscoroutinefunction(method) == (client is AsyncReverie), name
        bound = attrgetter(name)(client("ana"))
        assert list(inspect.signature(bound).parameters) == list(inspect.signature(method).parameters)[1:], name


@pytest.mark.parametrize("client", [Reverie, AsyncReverie])
def test_help_shows_each_subject_and_its_methods(client: type) -> None:
    """Given the methods, then the help of their client or subject shows them, and a client's also its subjects."""
    shown = pydoc.render_doc(client, renderer=pydoc.plaintext)
    for name in client_methods():
        path, _, method = name.rpartition(".")
        subject = attrgetter(path)(client) if path else client
        # Python 3.13 writes each argument of a long signature on a line of its own.
        assert re.search(rf" {method}\(\W*self,", pydoc.render_doc(subject, renderer=pydoc.plaintext)), name
        assert "." in path or inspect.getdoc(subject).partition("\n")[0] in shown
        assert inspect.iscoroutinefunction(attrgetter(name)(AsyncReverie)), "help of one client changed the other"


@pytest.mark.parametrize("client", [Reverie, AsyncReverie])
def test_a_method_of_an_earlier_version_names_the_one_that_has_replaced_it(client: type) -> None:
    """Given an old name, when it is read or a subject is called as the method that it was, then the error says more."""
    for old, new in OLD_NAMES.items():
        assert new in client_methods()
        with pytest.raises(AttributeError, match=f"{old}': it is '{new}' now"):
            getattr(client("ana"), old)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        _ = client("ana").nonsense
    with pytest.raises(TypeError, match=r"not callable; its methods are .* list, "):
        client("ana").sessions()


def test_all_results_that_are_lists_behave_alike() -> None:
    """Given the responses whose first field is a list, then each can be iterated, indexed and counted."""
    lists = {
        kind
        for kind in map(response_type, _declared())
        if get_origin(get_type_hints(kind)[kind.__struct_fields__[0]]) is list
    }
    assert {kind for kind in map(response_type, _declared()) if issubclass(kind, ListResult)} == lists
    for kind in lists:
        others = dict.fromkeys(kind.__struct_fields__[1:])
        result = kind(**{kind.__struct_fields__[0]: ["a", "b", "c"]}, **others)
        assert (list(result), len(result), result[0], result[1:]) == (["a", "b", "c"], 3, "a", ["b", "c"]), kind


def test_every_call_is_served_once() -> None:
    """Given the rooms of the server, then each declared call is served, under a route of its own."""
    served = Counter(endpoint.kind for endpoint in endpoints())
    assert set(served) == _declared()
    assert set(served.values()) == {1}
    routes = Counter(route_of(kind)[:2] for kind in served)
    assert set(routes.values()) == {1}


# The calls that a command sends without taking its options from them, and the command.
SENT_OTHERWISE = {
    "AcknowledgeNotifications": "notifications acknowledge",
    "BatchItems": "items load",
    "ClearScratchpadKeys": "scratchpads clear",
    "CountSchedules": "schedules list, which shows the number",
    "DeleteWorkspace": "db delete",
    "DropDeadLetter": "dead-letters drop",
    "GetFactHistory": "facts get --history",
    "GetSession": "sessions show",
    "GetSessionByRef": "sessions show",
    "GetStatus": "status",
    "GetWorkingMemory": "sessions show --working",
    "ImportMemories": "memory import",
    "ImportRecords": "import",
    "IngestFile": "files add",
    "IngestMessages": "ingest",
    "ListScratchpadKeys": "scratchpads show",
    "RecordEvent": "connect, whose hooks send it",
    "ReplayDeadLetter": "dead-letters replay",
    "Undo": "curation undo",
}
# The arguments of a call that are no option of its command, and why.
NO_OPTION = {
    "AddSchedule": {"cadence", "executor"},  # the same as --cron, --at, --every, and --webhook, --task
    "Erase": {"agent", "workspace"},  # the common options
    "ReadExport": {"agent", "workspace", "cursor"},  # the common options, and the pages of the file
    "ListMessages": {"around", "offset"},  # the newest are shown
    "PutItem": {"vectors"},  # numbers of the caller's own embedder, as below
    "SearchItems": {"query_vector", "distance"},
    "Recall": {"query_embedding"},  # 384 numbers
    "Remember": {"source_message"},  # set by extraction
    "RunJob": {"agent", "workspace"},  # the common options
    "UpdateSchedule": {"cadence", "executor"},
}


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        if command.invoke_without_command:  # a group that is a command itself
            yield " ".join(path), command.callback
        for name, inner in command.commands.items():
            yield from _commands(inner, (*path, name))
    else:
        yield " ".join(path), command.callback


def _taken() -> dict[type[Call[Any]], set[str]]:
    """Return the calls whose options commands take, each with the arguments that are left out."""
    taken: dict[type[Call[Any]], set[str]] = {}
    for _, callback in _commands(_command_line()):
        function = callback
        while function is not None and not hasattr(function, "takes"):
            function = getattr(function, "__wrapped__", None)
        for kind, left_out in getattr(function, "takes", {}).items():
            taken.setdefault(kind, set(left_out)).intersection_update(left_out)
    return taken


def _command_line() -> Any:
    for name in COMMANDS:
        import_command(name)
    return typer.main.get_command(application)


def test_every_call_has_a_command() -> None:
    """Given the declared calls, then a command takes the options of each, or the table names what sends it."""
    names = {kind.__name__ for kind in _declared()}
    assert names - {kind.__name__ for kind in _taken()} == set(SENT_OTHERWISE)
    commands = {path for path, _ in _commands(_command_line())}
    named = {text.partition(",")[0].partition(" --")[0] for text in SENT_OTHERWISE.values()}
    assert named - commands == set()


def test_a_command_has_the_options_of_its_call() -> None:
    """Given the commands, then the arguments without an option are those that have a reason."""
    assert {kind.__name__: left_out for kind, left_out in _taken().items() if left_out} == NO_OPTION
