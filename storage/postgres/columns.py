"""The tables of the schema with their columns and types, read from `schema.sql`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_name("schema.sql")
_TABLE: Final = re.compile(r"^CREATE TABLE (\w+) \(\n(.*?)\n\)", re.DOTALL | re.MULTILINE)
_COLUMN: Final = re.compile(
    r"^    (?!PRIMARY|UNIQUE|FOREIGN)(\w+) (bigint|text|double precision|bytea)(.*)$", re.MULTILINE
)
_KEY: Final = re.compile(r"PRIMARY KEY \((.*)\)")
_VIEW: Final = re.compile(r"^CREATE VIEW (\w+) ", re.MULTILINE)
_STORE: Final = "store_id"


@cache
def tables() -> Mapping[str, Mapping[str, str]]:
    """Return the types of columns by table."""
    return {name: {found[0]: found[1] for found in _COLUMN.findall(body)} for name, body in _TABLE.findall(_text())}


@cache
def shared_tables() -> frozenset[str]:
    """Return the tables and views with rows of many stores."""
    return frozenset({name for name, columns in tables().items() if _STORE in columns} | set(_VIEW.findall(_text())))


@cache
def nullable_columns() -> frozenset[str]:
    """Return the names of columns that can be NULL in some table."""
    found = set()
    for _, body in _TABLE.findall(_text()):
        keys = {key.strip() for line in _KEY.findall(body) for key in line.split(",")}
        found |= {name for name, _, rest in _COLUMN.findall(body) if "NOT NULL" not in rest and name not in keys}
    return frozenset(found)


def read_from(schema: str) -> None:
    """Read another schema than that of the file: the one that is being derived."""
    _source.clear()
    _source.append(schema)
    for read in (tables, shared_tables, nullable_columns):
        read.cache_clear()


_source: list[str] = []


def _text() -> str:
    return _source[0] if _source else _FILE.read_text(encoding="utf-8")
