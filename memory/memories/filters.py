"""Which memories a caller asks for, from the words of HTTP and of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reverie.checks import check_label, check_query, normalise_tags
from reverie.errors import Rejected
from storage.memories.records import LIFETIMES, MEMORY_KINDS, TIERS, MemoryFilter


def memory_filter(
    *,
    tier: str | None = None,
    lifetime: str | None = None,
    kind: str | None = None,
    source: str | None = None,
    tags: Iterable[str] = (),
    session: str | None = None,
    channel: str | None = None,
    owner_user_id: str | None = None,
    text: str | None = None,
    superseded: bool = False,
) -> MemoryFilter:
    """A filter in which everything given must apply. Raises `Rejected` naming what cannot."""
    return MemoryFilter(
        tiers=_one_of("tier", tier, TIERS),
        lifetimes=_one_of("lifetime", lifetime, LIFETIMES),
        kinds=_one_of("kind", kind, MEMORY_KINDS),
        sources=() if source is None else (check_label("source", source, required=True),),
        tags=tuple(normalise_tags(tags, field="tag")),
        session=check_label("session", session),
        channel=check_label("channel", channel),
        owner=check_label("owner_user_id", owner_user_id),
        text=check_query(text) if text else None,
        active=None if superseded else True,
    )


def _one_of(field: str, value: str | None, choices: Sequence[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if value not in choices:
        raise Rejected(f"{field} {value[:80]!r} is none of {', '.join(choices)}", field=field)
    return (value,)
