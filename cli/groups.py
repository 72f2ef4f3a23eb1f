"""Declare commands by the calls that they make: options, `--json`, questions before deletions, and tables follow.

    notes = Group("notes")

    @notes.lists("list", ListNotes, ("id", "updated", "note"), none="notes")
    def _row(note: Note) -> Row:
        \"\"\"List the agent's notes, newest first.\"\"\"
        return note.note_id, when(note.updated_at), shortened(note.content)

The docstring is the help of the command. Keyword arguments say how the fields of the call become options, as for
`takes`. A function may also take `call`, the call that was made, and `command`, the invocation.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, TypeAlias, TypeVar

import typer
from msgspec.structs import replace

from cli.application import Invocation, application, invocation
from cli.commands import COMMANDS, CommandGroup
from cli.options import takes
from cli.output import AsJson, Yes, confirm, print_json, print_result, print_struct, print_table, say
from reverie.calls import Call, Paged
from reverie.counts import counted
from reverie.fields import MAX_PAGE

# The cells of one line of a table.
Row: TypeAlias = Sequence[object]
_A = TypeVar("_A")
_Function = TypeVar("_Function", bound=Callable[..., Any])
# Returns the text that a command prints about a response; it may also take the call and the invocation.
_Says: TypeAlias = Callable[Concatenate[_A, ...], str | None]

# Raises `NotFound` if there is nothing that a call is about.
_Finds: TypeAlias = Callable[[Invocation, Any], None]


class Group:
    """A group of commands, such as `reverie notes`; without a name, the commands of `reverie` itself."""

    def __init__(self, name: str = "", **options: Any) -> None:
        self._typer = application
        if name:
            self._typer = typer.Typer(
                help=COMMANDS[name].help, **{"cls": CommandGroup, "no_args_is_help": True, **options}
            )
            application.add_typer(self._typer, name=name)

    def command(self, name: str, *kinds: type[Call[Any]], **form: Any) -> Callable[[_Function], _Function]:
        """Declare a command whose function does everything itself. It gets a call if it takes one."""

        def declare(function: _Function) -> _Function:
            self._typer.command(name)(_from_context(takes(*kinds, **form)(function) if kinds else function))
            return function

        return declare

    def callback(self, *kinds: type[Call[Any]], **form: Any) -> Callable[[_Function], _Function]:
        """Declare the function that runs when the group is called without a command."""

        def declare(function: _Function) -> _Function:
            self._typer.callback(invoke_without_command=True)(_from_context(takes(*kinds, **form)(function)))
            return function

        return declare

    def says(
        self,
        name: str,
        kind: type[Call[_A]],
        *,
        asks: str = "",
        finds: type[Call[Any]] | _Finds | None = None,
        **form: Any,
    ) -> Callable[[_Says[_A]], _Says[_A]]:
        """Declare a command whose function returns a text about the response, or prints one itself and returns None.

        `asks` is the question before the call, in which {call} and {agent} are filled in. It is not asked about what
        `finds` does not find: a call with the same fields, or a function, that raises `NotFound`.
        """

        def declare(function: _Says[_A]) -> _Says[_A]:
            def answer(command: Invocation, call: Call[_A], as_json: bool) -> None:
                response = command.send(call)
                if as_json:
                    print_json(response)
                elif (text := function(response, **_given(function, call, command))) is not None:
                    say(text)

            self._add(name, kind, function.__doc__, answer, asks, form, finds)
            return function

        return declare

    def shows(self, name: str, kind: type[Call[Any]], help: str, **form: Any) -> None:
        """Declare a command that prints each field of the response on a line."""

        def answer(command: Invocation, call: Call[Any], as_json: bool) -> None:
            print_struct(command.send(call), as_json)

        self._add(name, kind, help, answer, "", form)

    def lists(
        self, name: str, kind: type[Call[Any]], columns: Sequence[str], *, none: str | Callable[[Any], str], **form: Any
    ) -> Callable[[_Function], _Function]:
        """Declare a command that prints a table; the function returns the cells of one line, for one item.

        `none` is for an empty list: the plural of the items, or a function of the call that returns it, or a whole
        sentence in which {call}, {agent} and {workspace} are filled in. With --json the items are printed; the whole
        page if it has a total.
        """

        def declare(function: _Function) -> _Function:
            def answer(command: Invocation, call: Call[Any], as_json: bool) -> None:
                page = command.send(call)
                if as_json:
                    print_json(page if hasattr(page, "total") else list(page))
                    return
                given = _given(function, call, command)
                print_table(
                    columns, (function(item, **given) for item in page), empty=lambda: _none_text(none, call, command)
                )
                if getattr(page, "total", 0) > len(page):
                    noun = type(page).__struct_fields__[0].removesuffix("s")
                    say(f"({len(page):,} of {counted(page.total, noun)})")

            self._add(name, kind, function.__doc__, answer, "", form)
            return function

        return declare

    def deletes(
        self,
        name: str,
        kind: type[Call[Any]],
        noun: str,
        help: str,
        *,
        finds: type[Call[Any]] | _Finds | None = None,
        asks: str | None = None,
        done: str = "Deleted.",
        **form: Any,
    ) -> None:
        """Declare a command that deletes the thing named by its last argument, after a question unless `asks` is "".

        It fails if the agent has nothing of this name, which `finds` finds out before the question.
        """
        named = form["arguments"][-1]

        def answer(command: Invocation, call: Call[Any], as_json: bool) -> None:
            if not command.send(call).deleted:
                raise command.missing(noun, getattr(call, named))
            print_result({"deleted": True}, as_json, done)

        question = f"Delete {noun} {{call.{named}!r}} of agent {{agent}} for good?" if asks is None else asks
        self._add(name, kind, help, answer, question, form, finds)

    def _add(
        self,
        name: str,
        kind: type[Call[Any]],
        help: str | None,
        answer: Callable[[Invocation, Any, bool], None],
        asks: str,
        form: dict[str, Any],
        finds: type[Call[Any]] | _Finds | None = None,
    ) -> None:
        def run(command: Invocation, call: Any, as_json: AsJson = False) -> None:
            answer(command, call, as_json)

        def run_if_sure(command: Invocation, call: Any, yes: Yes = False, as_json: AsJson = False) -> None:
            if not yes and finds is not None:
                find(command, finds, call)
            confirm(asks.format(call=call, agent=command.agent), yes)
            answer(command, call, as_json)

        self._typer.command(name, help=help)(_from_context(takes(kind, **form)(run_if_sure if asks else run)))


def find(command: Invocation, finds: type[Call[Any]] | _Finds, call: Call[Any]) -> None:
    """Raise `NotFound` if there is nothing that a call is about, so that no question is asked about it."""
    if isinstance(finds, type):
        kind: type[Call[Any]] = finds
        shared = [name for name in kind.__struct_fields__ if hasattr(call, name)]
        command.send(kind(**{name: getattr(call, name) for name in shared}))
    else:
        finds(command, call)


def all_pages(command: Invocation, call: Paged[Any]) -> Iterator[Any]:
    """Yield what a call lists, over all pages."""
    offset = 0
    while page := command.send(replace(call, limit=MAX_PAGE, offset=offset)):
        yield from page
        offset += len(page)


def _from_context(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that Typer calls with its context, of which the function gets the invocation as `command`.

    The callback of a group is skipped when one of the group's commands is named.
    """
    parameters = dict(inspect.signature(function, eval_str=True).parameters)
    named = parameters.pop("command", None)

    @functools.wraps(function)
    def run(context: typer.Context, **arguments: Any) -> None:
        if context.invoked_subcommand is None:
            function(**arguments, **({"command": invocation(context)} if named else {}))

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *parameters.values()])  # type: ignore[attr-defined]  # for typer
    return run


root = Group()


def _given(function: Callable[..., Any], call: Call[Any], command: Invocation) -> dict[str, Any]:
    """Return the call and the invocation, as far as a function has such arguments."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in (("call", call), ("command", command)) if name in parameters}


def _none_text(none: str | Callable[[Any], str], call: Call[Any], command: Invocation) -> str:
    text = none if isinstance(none, str) else none(call)
    if not text.endswith("."):
        return command.none_of(text, call)
    return text.format(call=call, agent=command.agent, workspace=command.workspace)
