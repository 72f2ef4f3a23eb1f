"""What a check found, and how checks are run: one that fails is a finding, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec

from reverie.errors import ReverieError

State: TypeAlias = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found about one `subject`, and for a warning or a problem what to do about it."""

    subject: str
    state: State
    found: str
    advice: str = ""


# Yields what it finds. Raises one of Reverie's errors, whose text says what to do.
Check: TypeAlias = Callable[[], Iterator[Finding]]


def run_check(subject: str, check: Check) -> Iterator[Finding]:
    """Yield the findings of a check. An error ends it, and is a problem."""
    try:
        yield from check()
    except ReverieError as error:
        yield Finding(subject, "problem", str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        yield Finding(
            subject, "problem", f"{place}{error.strerror or error}", "see who owns it, and whether it is there"
        )
