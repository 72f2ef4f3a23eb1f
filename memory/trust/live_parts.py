"""Finds those parts of erased texts that rows hold by right, because others have said the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from memory.trust.fragments import FragmentSet, HashKey, Matcher
from reverie.errors import NotFound
from storage.stores import Stores


def parts_in_rows(stores: Stores, key: HashKey, wanted: FragmentSet, *, on_store: Callable[[], None]) -> FragmentSet:
    """Return the parts that rows of any store have; `on_store` is called after each store."""
    found, matcher = FragmentSet(), Matcher(key, wanted)
    if not len(wanted):
        return found
    for name in stores.all_names():
        with suppress(NotFound), stores.workspace(name, create=False).reading() as tx:
            for block in tx.stored_texts.blocks():
                found.add(matcher.found_in(block))
        on_store()
    return found
