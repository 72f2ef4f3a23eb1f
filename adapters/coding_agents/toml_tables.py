"""Append a table to a TOML text and take it out again, and leave every other line as it is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reverie.errors import Rejected

_MARK: Final = "# Written by `reverie connect`; `reverie connect {tool} --remove` takes it out.\n"


def parse(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. Raises `Rejected`, naming the line."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        text = f"it is not valid TOML ({error}): the file was left as it is, correct it first"
        raise Rejected(text, field="file") from None


def with_table(text: str, keys: Sequence[str], values: Mapping[str, Any], *, tool: str) -> str:
    """Return the text with a table at its end. Values are texts, lists of texts, and objects of texts."""
    lines = [f"{key} = {_written(value)}\n" for key, value in values.items()]
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{_MARK.format(tool=tool)}[{'.'.join(keys)}]\n{''.join(lines)}"


def without_table(text: str, keys: Sequence[str]) -> str:
    """Return the text without a table: its header, the line that says who wrote it, and its values."""
    name = ".".join(keys)
    lines = text.splitlines(keepends=True)
    begin = next((place for place, line in enumerate(lines) if line.split("#")[0].strip() == f"[{name}]"), None)
    if begin is None:
        return text
    end = begin + 1
    while end < len(lines) and lines[end].strip() and not lines[end].lstrip().startswith(("[", "#")):
        end += 1
    if begin and lines[begin - 1].startswith("# Written by `reverie connect`"):
        begin -= 1
        if begin and not lines[begin - 1].strip():
            begin -= 1
    return "".join(lines[:begin] + lines[end:])


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
