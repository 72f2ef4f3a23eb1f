"""What scratchpads, channels and sessions are held to, in the client and once more in the server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from reverie import contract
from reverie.checks import check_depth, check_json, check_label, check_text
from reverie.errors import Rejected

# What an agent keeps at hand while it works: a page, not a store.
MAX_ITEMS: Final = 32
MAX_ITEM_CHARACTERS: Final = 240
MAX_KEYS: Final = 256
MAX_KEY_CHARACTERS: Final = 128
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_DESCRIPTION_BYTES: Final = 4 * 1024


def check_items(items: Iterable[object]) -> list[str]:
    """The list of a scratchpad, or `Rejected` naming the item at fault."""
    if isinstance(items, str):
        raise Rejected("items must be a list of texts, not one text", field="items")
    checked = [_item(number, item) for number, item in enumerate(items)]
    if len(checked) > MAX_ITEMS:
        raise Rejected(f"{len(checked)} items; the limit is {MAX_ITEMS}: leave out what is done", field="items")
    return checked


def check_key(key: object) -> str:
    """The key of a scratchpad, or `Rejected`."""
    checked: str = check_label("key", key, required=True, limit=MAX_KEY_CHARACTERS)
    return checked


def check_value(value: object) -> Any:
    """The value of a key, or `Rejected`: what JSON cannot say, or says in more than 64 KiB."""
    check_depth("value", value)
    check_json("value", value, MAX_VALUE_BYTES)
    if not _is_finite(value):
        raise Rejected("value holds a number that JSON cannot write: NaN or an infinity", field="value")
    return value


def check_channel(channel: object, *, field: str = "channel") -> str:
    """The id of a channel, or `Rejected`."""
    checked: str = check_label(field, channel, required=True)
    return checked


def check_description(description: object) -> str:
    """What a channel is about, or `Rejected`."""
    if not isinstance(description, str):
        raise Rejected(f"description must be a text, not {type(description).__name__}", field="description")
    check_text("description", description, MAX_DESCRIPTION_BYTES)
    return description


def check_session_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is noted of a session, or `Rejected`."""
    noted = dict(metadata or {})
    check_json("metadata", noted, contract.MAX_METADATA_BYTES)
    return noted


def _item(number: int, item: object) -> str:
    field = f"items[{number}]"
    if not isinstance(item, str) or not item.strip():
        raise Rejected(f"{field} must be a text that is not blank", field=field)
    if len(item) > MAX_ITEM_CHARACTERS:
        raise Rejected(f"{field} has {len(item):,} characters; the limit is {MAX_ITEM_CHARACTERS}", field=field)
    check_text(field, item, 4 * MAX_ITEM_CHARACTERS)
    return item


def _is_finite(value: object) -> bool:
    """Whether every number in a value, whose depth is checked, can be written."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, (list, tuple)) else True
