"""Filters for memories: what callers ask for over HTTP and on the command line, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reverie.checks import check_label, check_query, normalise_tags
from reverie.errors import Rejected
from storage.memories.records import LIFETIMES, MEMORY_KINDS, TIERS, MemoryFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuery:
    """The conditions of a listing as the caller gave them: all must hold. `superseded` adds superseded memories."""

    tier: str | None = None
    lifetime: str | None = None
    kind: str | None = None
    source: str | None = None
    tags: Iterable[str] = ()
    session: str | None = None
    channel: str | None = None
    owner_user_id: str | None = None
    text: str | None = None
    superseded: bool = False


def memory_filter(query: MemoryQuery) -> MemoryFilter:
    """Return the checked filter of a query. Raises `Rejected` naming the field."""
    return MemoryFilter(
        tiers=_one_of("tier", query.tier, TIERS),
        lifetimes=_one_of("lifetime", query.lifetime, LIFETIMES),
        kinds=_one_of("kind", query.kind, MEMORY_KINDS),
        sources=() if query.source is None else (check_label("source", query.source, required=True),),
        tags=tuple(normalise_tags(query.tags, field="tag")),
        session=check_label("session", query.session),
        channel=check_label("channel", query.channel),
        owner=check_label("owner_user_id", query.owner_user_id),
        text=check_query(query.text) if query.text else None,
        active=None if query.superseded else True,
    )


def _one_of(field: str, value: str | None, choices: Sequence[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if value not in choices:
        raise Rejected(f"{field} {value[:80]!r} is none of {', '.join(choices)}", field=field)
    return (value,)
