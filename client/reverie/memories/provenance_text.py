"""Where a memory comes from, in words: a few for a context, a line for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reverie.memories.types import DREAM_SWEEP, IMPORT, Provenance

# Longer ids of sessions cost more tokens than a context has for them: their reference code stands for them.
_SESSION_CHARACTERS: Final = 20
# Extraction is what makes most memories, and what a call stored says so by whose word it is: more words cost tokens.
_MADE: Final = {DREAM_SWEEP: "dream", IMPORT: "imported"}
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_USER: Final = "user"


def short_text(provenance: Provenance, *, clean: Callable[[str], str], user: str | None = None) -> str:
    """Return whose word it is and which job made it, in a few words: "tool, luis, dream".

    What goes without saying is left out: the `user` of the document, that it is that user's own word, and that
    extraction found it. `clean` makes stored text fit for a line.
    """
    trust = "" if provenance.trust in (_USER, IMPORT) else provenance.trust
    person = provenance.user or provenance.name
    parts = [trust, person if person != user else None, _MADE.get(provenance.made_by)]
    return ", ".join(dict.fromkeys(part for part in map(clean, filter(None, parts)) if part))


def place_text(provenance: Provenance, *, clean: Callable[[str], str], here: str) -> str:
    """Return the session that it was said in, by its reference code if its id is long; empty for the session `here`."""
    session = provenance.session if provenance.session != here else None
    if session is not None and len(session) > _SESSION_CHARACTERS:
        session = provenance.ref_code
    return clean(session) if session else ""


def long_text(provenance: Provenance, *, clean: Callable[[str], str] = str) -> str:
    """Return all that is known: "kate (user), 3 May 2026, session chat-42, message m1, made by extract-memories"."""
    person = " ".join(map(clean, dict.fromkeys(filter(None, (provenance.user, provenance.name)))))
    who = f"{person} ({clean(provenance.trust)})" if person else clean(provenance.trust)
    said_at = provenance.said_at
    parts = [who, f"{said_at.day} {_MONTHS[said_at.month - 1]} {said_at.year}"]
    if provenance.workspace:
        parts.append(f"workspace {clean(provenance.workspace)}")
    if provenance.session:
        parts.append(f"session {clean(provenance.session)}")
    if provenance.message:
        readable = "" if provenance.message_readable else " (not readable)"
        parts.append(f"message {clean(provenance.message)}{readable}")
    parts.append(f"made by {clean(provenance.made_by)}")
    return ", ".join(
        [*parts, *(f"{change.action} by {change.job} {change.at:%Y-%m-%d}" for change in provenance.changes)]
    )
