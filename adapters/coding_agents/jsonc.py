"""Change single members of a JSON text and leave every other character as it is, comments and trailing commas too.

The configuration files of coding agents are written by people as well: members that are not ours must not be
reformatted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reverie.errors import Rejected

# An unclosed comment extends to the end of the text. Otherwise the search for its end would be repeated at each `/*`.
_BLANK: Final = re.compile(r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))+")
_DECODER: Final = json.JSONDecoder()
_SCALAR: Final = re.compile(r"true|false|null|-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,400})?")
_INDENT: Final = re.compile(r"\n([ \t]+)\"")
_MAX_DEPTH: Final = 64


@dataclass(slots=True)
class Node:
    """A value in a text, from `start` to `end`; `key_start` is where its member begins, if it is one."""

    start: int
    end: int
    value: Any
    key_start: int = 0
    members: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)

    @property
    def children(self) -> list[Node]:
        """The members of an object, or the items of an array, in their order."""
        return [*self.members.values(), *self.items]


def parse(text: str) -> Node:
    """Return the value of a JSON text with comments. Raises `Rejected`, naming the line, for anything else."""
    scanner = _Scanner(text)
    place = scanner.blank(1 if text.startswith("\ufeff") else 0)
    root = scanner.value(place, 0)
    if scanner.blank(root.end) != len(text):
        scanner.fail(root.end)
    return root


def with_member(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with a member at this path, replaced if it is there; missing objects are added."""
    node, depth = parse(text), 0
    while depth < len(keys) and isinstance(node.value, dict) and keys[depth] in node.members:
        node = node.members[keys[depth]]
        depth += 1
    unit = _indent_of(text)
    if depth == len(keys):
        return text[: node.start] + _dumped(value, unit, depth) + text[node.end :]
    _require(node, dict, keys[:depth])
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    member = f"{json.dumps(keys[depth])}: {_dumped(value, unit, depth + 1)}"
    return _with_child(text, node, member, unit, depth)


def with_item(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with an item appended to the array at this path, which is added if it is missing."""
    node = _find(parse(text), keys)
    if node is None:
        return with_member(text, keys, [value])
    _require(node, list, keys)
    unit = _indent_of(text)
    return _with_child(text, node, _dumped(value, unit, len(keys) + 1), unit, len(keys))


def without(text: str, keys: Sequence[str | int]) -> str:
    """Return the text without the member or the item at this path, if it is there."""
    parent = _find(parse(text), keys[:-1])
    if parent is None:
        return text
    name = keys[-1]
    if isinstance(name, str):
        node = parent.members.get(name)
    else:
        node = parent.items[name] if name < len(parent.items) else None
    if node is None:
        return text
    children = parent.children
    place = next(number for number, child in enumerate(children) if child is node)
    return _without_child(text, parent, place)


def _without_child(text: str, parent: Node, place: int) -> str:
    children = parent.children
    node = children[place]
    begin, end = node.key_start, node.end
    comma_after = _comma(text, end)
    before = text[:begin]
    if comma_after is not None:
        end = comma_after + 1
    elif place > 0:
        comma = _comma(text, children[place - 1].end)
        if comma is not None:
            before = text[:comma] + text[comma + 1 : begin]
    # With the line break and the blanks before it, so that no empty line stays.
    before = before.rstrip(" \t")
    if before.endswith("\n"):
        before = before[:-1].removesuffix("\r")
    after = text[end:]
    if len(children) == 1 and not text[parent.start + 1 : begin].strip() and not text[end : parent.end - 1].strip():
        return text[: parent.start + 1] + text[parent.end - 1 :]
    return before + after


def _with_child(text: str, parent: Node, child: str, unit: str, depth: int) -> str:
    inner, outer = "\n" + unit * (depth + 1), "\n" + unit * depth
    if not parent.children:
        inside = text[parent.start + 1 : parent.end - 1].rstrip()
        return f"{text[: parent.start + 1]}{inside}{inner}{child}{outer}{text[parent.end - 1 :]}"
    last = parent.children[-1]
    comma = _comma(text, last.end)
    if comma is not None:  # keep the style of lists that end with a comma
        return f"{text[: comma + 1]}{inner}{child},{text[comma + 1 :]}"
    return f"{text[: last.end]},{inner}{child}{text[last.end :]}"


def _find(node: Node, keys: Sequence[str | int]) -> Node | None:
    for key in keys:
        if isinstance(key, str):
            if key not in node.members:
                return None
            node = node.members[key]
        else:
            if key >= len(node.items):
                return None
            node = node.items[key]
    return node


def _require(node: Node, kind: type, keys: Sequence[str]) -> None:
    if not isinstance(node.value, kind):
        wanted = "an object" if kind is dict else "an array"
        raise Rejected(f"{'.'.join(keys) or 'the file'} is not {wanted}: the file was left as it is", field="file")


def _comma(text: str, place: int) -> int | None:
    """Return where the comma after a value is, None if none follows."""
    found = _BLANK.match(text, place)
    place = found.end() if found else place
    return place if text[place : place + 1] == "," else None


def _indent_of(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _dumped(value: Any, unit: str, depth: int) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + unit * depth)


class _Scanner:
    """Reads a JSON text with comments and trailing commas."""

    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, place: int) -> None:
        """Raise `Rejected` with the line."""
        line = self._text.count("\n", 0, place) + 1
        raise Rejected(f"line {line} is not valid JSON: the file was left as it is, correct it first", field="file")

    def blank(self, place: int) -> int:
        """Return the place after the blanks and comments that start here."""
        found = _BLANK.match(self._text, place)
        return found.end() if found else place

    def value(self, place: int, depth: int) -> Node:
        """Return the value that begins at a place."""
        if depth > _MAX_DEPTH:
            self.fail(place)
        match self._text[place : place + 1]:
            case "{":
                return self._object(place, depth)
            case "[":
                return self._array(place, depth)
            case '"':
                text, end = self._string(place)
                return Node(place, end, text, place)
        found = _SCALAR.match(self._text, place)
        if found is None:
            self.fail(place)
        assert found is not None
        return Node(place, found.end(), json.loads(found[0]), place)

    def _string(self, place: int) -> tuple[str, int]:
        if self._text[place : place + 1] != '"':
            self.fail(place)
        try:
            text, end = _DECODER.raw_decode(self._text, place)
        except ValueError:
            self.fail(place)
            raise
        return str(text), end

    def _object(self, begin: int, depth: int) -> Node:
        members: dict[str, Node] = {}
        place = self.blank(begin + 1)
        while self._text[place : place + 1] != "}":
            key_start = place
            key, place = self._string(place)
            place = self.blank(place)
            if self._text[place : place + 1] != ":":
                self.fail(place)
            node = self.value(self.blank(place + 1), depth + 1)
            node.key_start = key_start
            members[key] = node
            place = self._next(node.end, "}")
        value = {key: node.value for key, node in members.items()}
        return Node(begin, place + 1, value, begin, members=members)

    def _array(self, begin: int, depth: int) -> Node:
        items: list[Node] = []
        place = self.blank(begin + 1)
        while self._text[place : place + 1] != "]":
            items.append(self.value(place, depth + 1))
            place = self._next(items[-1].end, "]")
        return Node(begin, place + 1, [node.value for node in items], begin, items=items)

    def _next(self, place: int, closing: str) -> int:
        """Return where the next member or item begins, or the closing bracket is."""
        place = self.blank(place)
        if self._text[place : place + 1] == ",":
            return self.blank(place + 1)
        if self._text[place : place + 1] != closing:
            self.fail(place)
        return place
