"""Brings the schema of a PostgreSQL database to the newest version: one SQL file for each step, each in a transaction.

Version 100 is the schema of the first release. `0101_what_it_does.sql` leads from there to version 101, and so on; a
new database gets the newest schema at once, from `schema.sql`. How to write one: docs/recipes.md.

Invariant: a version is recorded in the transaction that makes it. A process that is killed leaves the version before.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

# Lower numbers were those of versions that were never released.
FIRST: Final = 100
_FOLDER: Final = Path(__file__).parent


def newest_version() -> int:
    """Return the version of `schema.sql`."""
    return max(migrations(), default=FIRST)


def migrations() -> dict[int, Path]:
    """Return the files of all migrations by the version that each leads to, oldest first."""
    return _files(_FOLDER)


@cache
def _files(folder: Path) -> dict[int, Path]:
    return {int(path.name.split("_")[0]): path for path in sorted(folder.glob("[0-9]*_*.sql"))}
