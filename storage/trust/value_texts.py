"""The texts within one value of a row, also within JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def texts_of_value(value: Any) -> Iterator[str]:
    """Yield the texts of one column: those within JSON one by one, and of bytes that are JSON (a payload)."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return
    if not isinstance(value, str) or not value:
        return
    if value[0] in "[{":
        try:
            yield from _inner_texts(json.loads(value))
            return
        except (ValueError, RecursionError):
            pass
    yield value


def _inner_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from texts_of_value(value)  # JSON within JSON, as in the images of the curation log
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _inner_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _inner_texts(inner)
