"""Reads what contexts told and left out, with the present texts: "why did it say that?"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from memory.conversion import convert
from reverie.errors import NotFound
from reverie.recall.types import ServedContext, ServedItem
from storage.recall.contexts import NewContext
from storage.stores import Store


class _Present(NamedTuple):
    """The present text of an item, and when it was last changed (microseconds; 0 if it never is)."""

    text: str
    changed_at: int = 0


def list_contexts(store: Store, *, agent: str, session: str | None, limit: int, offset: int) -> list[ServedContext]:
    """Return the contexts that the store's viewer may see, newest first, without their items."""
    with store.reading() as tx:
        found = tx.for_agent(agent).contexts.page(session=session, limit=limit, offset=offset)
    return [_served(one, []) for one in found]


def show_context(store: Store, account_of: Callable[[str | None], Store], id: str, *, agent: str) -> ServedContext:
    """Return a context with the present texts; `account_of` returns the account's store as a user sees it.

    Raises `NotFound`.
    """
    with store.reading() as tx:
        context = tx.for_agent(agent).contexts.find(id)
    if context is None:
        raise NotFound(f"there is no context {id!r} of agent {agent}: it is too old, or was forgotten", field="id")
    present = _present(account_of(context.user), agent, context) | _present(store, agent, context)
    return _served(context, [_with_text(one, context, present.get(_key(one, context))) for one in context.items])


def _served(context: NewContext, items: list[ServedItem]) -> ServedContext:
    left_out = sum(bool(one.left_out) for one in context.items)
    return convert(context, ServedContext, told=len(context.items) - left_out, left_out=left_out, items=items)


def _with_text(item: ServedItem, context: NewContext, present: _Present | None) -> ServedItem:
    if present is None:
        return replace(item, forgotten=True)
    return replace(item, text=present.text, changed=present.changed_at > context.at)


def _key(item: ServedItem, context: NewContext) -> tuple[str, str | None, str]:
    return (item.kind, (item.session or context.session) if item.kind == "message" else None, item.id)


def _present(store: Store, agent: str, context: NewContext) -> dict[tuple[str, str | None, str], _Present]:
    """Return what the viewer of a store still finds there."""
    found: dict[tuple[str, str | None, str], _Present] = {}
    keys = {_key(item, context) for item in context.items}
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        memories = rows.memories.with_ids(_ids(keys, "memory", None))
        found |= {("memory", None, id): _Present(one.content, one.updated_at) for id, one in memories.items()}
        files = rows.files.with_ids(_ids(keys, "file", None))
        found |= {("file", None, one.id): _Present(one.source_uri) for one in files}
        for session in {session for kind, session, _ in keys if kind == "message" and session is not None}:
            record = rows.sessions.find(session)
            messages = rows.messages.with_ids(record.row_id, _ids(keys, "message", session)) if record else {}
            found |= {("message", session, id): _Present(one.content) for id, one in messages.items()}
    return found


def _ids(keys: Iterable[tuple[str, str | None, str]], kind: str, session: str | None) -> list[str]:
    return [id for one, of, id in keys if (one, of) == (kind, session)]
