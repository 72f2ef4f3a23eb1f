"""`reverie items`: JSON values under a namespace and a key.

A namespace is written as its labels with full stops between them, `users.kate`, or as a JSON array.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from cli.application import application, invocation
from cli.input import input_of
from cli.options import takes
from cli.output import AsJson, Yes, confirm, encoded, note, print_deleted, print_json, print_list, print_result
from reverie.calls import validated
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.items.calls import (
    BatchItems,
    DeleteItem,
    GetItem,
    ListItemNamespaces,
    PutItem,
    PutOperation,
    SearchItems,
    SweepItems,
)

items = typer.Typer(help="Keep JSON values under a namespace and a key.", no_args_is_help=True)
application.add_typer(items, name="items")

# Items stored by one call of `load`.
_BATCH = 100


def _labels(text: str) -> Any:
    """Return the labels of a namespace as it is written on the command line."""
    if not text.startswith("["):
        return text.split(".") if text else []
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Rejected(f"namespace {text[:80]!r} is no JSON array: {error}", field="namespace") from None


_HELP = {"namespace": 'The namespace: its labels with full stops between them, "users.kate", or a JSON array.'}
_BELOW = {"namespace": 'Only below this namespace: "users.kate", or a JSON array.'}


@items.command("put")
@takes(
    PutItem,
    arguments=("namespace", "key", "value"),
    leave_out=("vectors",),
    helps=_HELP,
    parsers={"namespace": _labels},
)
def put_item(context: typer.Context, call: PutItem, as_json: AsJson = False) -> None:
    """Store an item in place of the one under its key."""
    print_result(invocation(context).send(call), as_json, f"{call.key} is stored.")


@items.command("get")
@takes(GetItem, arguments=("namespace", "key"), helps=_HELP, parsers={"namespace": _labels})
def get_item(context: typer.Context, call: GetItem, as_json: AsJson = False) -> None:
    """Show the value of an item; with --json the whole item."""
    item = invocation(context).send(call)
    print_json(item if as_json else item.value)


@items.command("search")
@takes(
    SearchItems,
    arguments=("namespace", "query"),
    leave_out=("query_vector", "distance"),
    helps=_BELOW,
    parsers={"namespace": _labels},
    defaults={"namespace": ""},
)
def search_items(context: typer.Context, call: SearchItems, as_json: AsJson = False) -> None:
    """List the items below a namespace, or those that fit a query, best first."""
    command = invocation(context)
    found = command.send(call)
    if found.degraded:
        note(f"reverie: {found.degraded}")
    print_list(
        found.items,
        as_json,
        ("namespace", "key", "score", "value"),
        (
            (
                ".".join(item.namespace),
                item.key,
                "-" if item.score is None else f"{item.score:.3f}",
                encoded(item.value),
            )
            for item in found
        ),
        empty=lambda: command.none_of("items", call),
    )


@items.command("namespaces")
@takes(
    ListItemNamespaces,
    helps={"prefix": 'Only those that begin so; "*" is any label.', "suffix": "Only those that end so."},
    parsers={"prefix": _labels, "suffix": _labels},
)
def list_namespaces(context: typer.Context, call: ListItemNamespaces, as_json: AsJson = False) -> None:
    """List the namespaces that hold items."""
    command = invocation(context)
    found = command.send(call).namespaces
    print_list(
        found,
        as_json,
        ("namespace",),
        ((".".join(namespace),) for namespace in found),
        empty=lambda: command.none_of("namespaces of items", call),
    )


@items.command("delete")
@takes(DeleteItem, arguments=("namespace", "key"), helps=_HELP, parsers={"namespace": _labels})
def delete_item(context: typer.Context, call: DeleteItem, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete an item for good."""
    command = invocation(context)
    confirm(f"Delete item {call.key!r} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=command.missing("item", call.key))


@items.command("load")
def load_items(
    context: typer.Context,
    namespace: Annotated[str, typer.Argument(help=_HELP["namespace"])],
    file: Annotated[Path, typer.Argument(help="A file with a JSON object in each line, or - for standard input.")],
    key: Annotated[str, typer.Option(help="The field of an object that is its key.")] = "id",
    user: Annotated[str | None, typer.Option(help="The end user whose items these are.")] = None,
    as_json: AsJson = False,
) -> None:
    """Store each line of a file, a JSON object, under the key that it names."""
    command = invocation(context)
    puts = [_line(number, line, _labels(namespace), key) for number, line in _lines(file)]
    for first in range(0, len(puts), _BATCH):
        command.send(validated(BatchItems(operations=puts[first : first + _BATCH], user=user)))
    print_result({"stored": len(puts)}, as_json, f"{counted(len(puts), 'item')} stored.")


@items.command("sweep")
@takes(SweepItems)
def sweep_items(context: typer.Context, call: SweepItems, as_json: AsJson = False) -> None:
    """Remove expired items now; the daily upkeep does so, too."""
    swept = invocation(context).send(call)
    print_result(swept, as_json, f"{counted(swept.removed, 'expired item')} removed.")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(input_of(file).splitlines(), 1):
        if line.strip():
            yield number, line


def _line(number: int, line: bytes, namespace: Any, key: str) -> PutOperation:
    """Return the put of a line. Raises `Rejected` with its number."""
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise Rejected(f"line {number} is not JSON: {error}", field="file") from None
    if not isinstance(value, dict) or not isinstance(value.get(key), str | int):
        raise Rejected(f"line {number} is no JSON object with a field {key!r}: name another with --key", field="file")
    return PutOperation(namespace=namespace, key=str(value[key]), value=value)
