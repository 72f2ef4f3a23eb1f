"""Where a memory comes from, in words: a few for a context, a line for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reverie.memories.types import DREAM_SWEEP, EXTRACTION, IMPORT, Provenance

# Longer ids of sessions cost more tokens than a context has for them: their reference code stands for them.
_SESSION_CHARACTERS: Final = 20
# What a call stored says so by whose word it is: another word would cost tokens and say no more.
_MADE: Final = {EXTRACTION: "extracted", DREAM_SWEEP: "dream", IMPORT: "imported"}
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_USER: Final = "user"


def short_text(provenance: Provenance, *, clean: Callable[[str], str], here: str | None = None) -> str:
    """Return who said it, in which session, and how it became a memory: "kate, chat-42, extracted".

    Whose word it is comes first, if not the user's. The date is not part of it: a context has it above the line. The
    session `here` is not named. `clean` makes stored text fit for a line.
    """
    session = provenance.session if provenance.session != here else None
    if session is not None and len(session) > _SESSION_CHARACTERS:
        session = provenance.ref_code
    made = _MADE.get(provenance.made_by, "")
    parts = [_trust(provenance), provenance.user or provenance.name or "", session or "", made]
    return ", ".join(dict.fromkeys(part for part in map(clean, filter(None, parts)) if part))


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


def _trust(provenance: Provenance) -> str:
    """Return whose word it is, where it is not the user's and the rest does not say so."""
    return "" if provenance.trust in (_USER, IMPORT) else provenance.trust
