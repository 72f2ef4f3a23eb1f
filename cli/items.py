"""`reverie items`: JSON values under a namespace and a key.

A namespace is written as its labels with full stops between them, `users.kate`, or as a JSON array.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from cli.application import Invocation
from cli.groups import Group, Row
from cli.options import from_json
from cli.output import AsJson, encoded, input_of, note, print_json, print_result, print_table
from reverie import items as calls
from reverie.calls import validated
from reverie.counts import counted
from reverie.decoding import check_keys
from reverie.errors import Rejected

items = Group("items")

# Items stored by one call of `load`.
_BATCH = 100


def _labels(text: str) -> Any:
    """Return the labels of a namespace as it is written on the command line."""
    if not text.startswith("["):
        return text.split(".") if text else []
    return from_json("namespace", text)


_HELP = {"namespace": 'The namespace: its labels with full stops between them, "users.kate", or a JSON array.'}
_BELOW = {"namespace": 'Only below this namespace: "users.kate", or a JSON array.'}
_PARSERS = {"namespace": _labels}


@items.says(
    "put", calls.PutItem, arguments=("namespace", "key", "value"), leave_out=("vectors",), helps=_HELP, parsers=_PARSERS
)
def _put_item(item: calls.Item) -> str:
    """Store an item in place of the one under its key."""
    return f"{item.key} is stored."


@items.says("get", calls.GetItem, arguments=("namespace", "key"), helps=_HELP, parsers=_PARSERS)
def _get_item(item: calls.Item) -> None:
    """Show the value of an item; with --json the whole item."""
    print_json(item.value)


@items.command(
    "search",
    calls.SearchItems,
    arguments=("namespace", "query"),
    leave_out=("query_vector", "distance"),
    helps=_BELOW,
    parsers=_PARSERS,
    defaults={"namespace": ""},
)
def search_items(command: Invocation, call: calls.SearchItems, as_json: AsJson = False) -> None:
    """List the items below a namespace, or those that fit a query, best first."""
    found = command.send(call)
    if found.degraded:
        note(f"reverie: {found.degraded}")
    if as_json:
        print_json(found.items)
        return
    print_table(
        ("namespace", "key", "score", "value"),
        (
            (".".join(one.namespace), one.key, "-" if one.score is None else f"{one.score:.3f}", encoded(one.value))
            for one in found
        ),
        empty=lambda: command.none_of("items", call),
    )


@items.lists(
    "namespaces",
    calls.ListItemNamespaces,
    ("namespace",),
    none="namespaces of items",
    helps={"prefix": 'Only namespaces that begin so; "*" is any label.', "suffix": "Only namespaces that end so."},
    parsers={"prefix": _labels, "suffix": _labels},
)
def _namespace_row(namespace: list[str]) -> Row:
    """List the namespaces that hold items."""
    return (".".join(namespace),)


items.deletes(
    "delete",
    calls.DeleteItem,
    "item",
    "Delete an item for good.",
    finds=calls.GetItem,
    arguments=("namespace", "key"),
    helps=_HELP,
    parsers=_PARSERS,
)


@items.command("load")
def load_items(
    command: Invocation,
    namespace: Annotated[str, typer.Argument(help=_HELP["namespace"])],
    file: Annotated[Path, typer.Argument(help="A file with a JSON object in each line, or - for standard input.")],
    key: Annotated[str, typer.Option(help="The field of an object that is its key.")] = "id",
    user: Annotated[str | None, typer.Option(help="The end user whose items these are.")] = None,
    as_json: AsJson = False,
) -> None:
    """Store each line of a file, a JSON object, under the key that it names."""
    puts = [_line(number, line, _labels(namespace), key) for number, line in _lines(file)]
    for first in range(0, len(puts), _BATCH):
        command.send(validated(calls.BatchItems(operations=puts[first : first + _BATCH], user=user)))
    print_result({"stored": len(puts)}, as_json, f"{counted(len(puts), 'item')} stored.")


@items.says("sweep", calls.SweepItems)
def _sweep_items(swept: calls.SweptItems) -> str:
    """Remove expired items now; the daily upkeep does so, too."""
    return f"{counted(swept.removed, 'expired item')} removed."


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(input_of(file).splitlines(), 1):
        if line.strip():
            yield number, line


def _line(number: int, line: bytes, namespace: Any, key: str) -> calls.PutOperation:
    """Return the put of a line. Raises `Rejected` with its number."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(f"line {number} is not JSON: {error}", field="file") from None
    check_keys(line, name=f"line {number}")
    if not isinstance(value, dict) or not isinstance(value.get(key), str | int):
        raise Rejected(f"line {number} is no JSON object with a field {key!r}: name another with --key", field="file")
    return calls.PutOperation(namespace=namespace, key=str(value[key]), value=value)
