"""The texts of an item that are embedded: what the paths of its index lead to, in pieces that a model reads whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from memory.pipeline.cutting import normalise, split

# The path of the whole value.
WHOLE: Final = "$"
# Pieces of 640 characters that are embedded of one item: what is behind them is not found by meaning.
MAX_PIECES: Final = 32
# Values that a path with wildcards is followed to.
_MAX_NODES: Final = 1_000
# An index in brackets, several names in braces, or a name.
_STEP: Final = re.compile(r"\[([^\[\]]*)\]|\{([^{}]*)\}|([^.\[\]{}]+)")
_CUT_CHARACTERS: Final = 640 * MAX_PIECES


def pieces_to_embed(value: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """Return the texts at the paths of a value in pieces, each once and at most `MAX_PIECES`."""
    found: dict[str, None] = {}
    for path in paths:
        for text in texts_at(value, path):
            prepared = normalise(text[:_CUT_CHARACTERS])
            found.update(dict.fromkeys(piece for piece in split(prepared) if piece))
    return list(islice(found, MAX_PIECES))


def texts_at(value: Any, path: str) -> list[str]:
    """Return the texts that a path leads to: `title`, `author.name`, `notes[0]`, `notes[*].text`, `{title,text}`, `*`.

    A number or a truth value is its text, an object or a list its fields, one a line. What is missing has no text.
    """
    nodes: list[Any] = [value]
    if path != WHOLE:
        for index, names, name in _STEP.findall(path):
            nodes = list(islice((found for node in nodes for found in _follow(node, index, names, name)), _MAX_NODES))
    return [text for node in nodes if (text := _text_of(node))]


def _follow(node: Any, index: str, names: str, name: str) -> Iterator[Any]:
    if names:
        for one in names.split(","):
            reached = node
            for part in one.strip().split("."):
                reached = reached.get(part) if isinstance(reached, Mapping) else None
            yield reached
    elif name == "*":
        yield from node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    elif name:
        if isinstance(node, Mapping) and name in node:
            yield node[name]
    elif isinstance(node, list):
        yield from node if index == "*" else _at(node, index)


def _at(node: list[Any], index: str) -> list[Any]:
    try:
        return [node[int(index)]]
    except (ValueError, IndexError):
        return []


def _text_of(node: Any) -> str:
    """Return the text of a value: that of its only field, or each field as its name and its text, one a line.

    A sentence is closer to a query than the same sentence among braces and quotation marks.
    """
    fields = list(_fields("", node))
    if len(fields) == 1:
        return fields[0][1]
    return "\n".join(f"{name}: {text}" if name else text for name, text in fields)


def _fields(name: str, node: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of a value with their names; those of a list have the name of the list."""
    if isinstance(node, Mapping):
        for key, inner in node.items():
            yield from _fields(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _fields(name, inner)
    elif text := _plain(node):
        yield name, text


def _plain(node: Any) -> str:
    return "" if node is None else str(node)
