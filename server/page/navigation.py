"""The sections of the page, in the order in which they are listed, each with the scope that it needs."""

from __future__ import annotations

from typing import Final, NamedTuple

from memory.trust.principals import Principal
from reverie.trust.scopes import Scope


class Section(NamedTuple):
    """A section: its name, its address, and the scope without which it has nothing to show."""

    name: str
    path: str
    scope: Scope


SECTIONS: Final = (
    Section("Memories", "/", "read"),
    Section("Conversations", "/conversations", "read"),
    Section("Schedules", "/schedules", "read"),
    Section("Dreams", "/dreams", "operate"),
    Section("Log", "/log", "operate"),
    Section("Dead letters", "/dead-letters", "operate"),
    Section("Erasures", "/erasures", "read"),
    Section("Pipeline", "/pipeline", "operate"),
)


def sections_for(principal: Principal) -> list[Section]:
    """Return the sections that a token opens."""
    return [section for section in SECTIONS if principal.allows(section.scope)]
