"""The migrations of store files: one SQL file for each step, applied in the order of their numbers.

A workspace has the tables of `workspace/`. The account's file has these too, because it has memories, and those of
`account/`. How far a file has come in each line is in its table `schema_version`. Never edit a released migration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from reverie.errors import StoreUnusable

Kind = Literal["workspace", "account"]

ACCOUNT_FILE: Final = "account.db"
# The lines (series) of migrations that apply to each kind of file.
LINES: Final[dict[Kind, tuple[Kind, ...]]] = {"workspace": ("workspace",), "account": ("account", "workspace")}
_FOLDER: Final = Path(__file__).parent
# The version of a file whose tables are from before the first release.
_UNRELEASED: Final = ""


@cache
def scripts(line: Kind) -> dict[str, Path]:
    """Return the files of a line of migrations by their versions, oldest first.

    The first is 0100: lower numbers were those of versions that were never released.
    """
    return {path.name.split("_")[0]: path for path in sorted((_FOLDER / line).glob("[0-9]*_*.sql"))}


def newest_version(line: Kind) -> str:
    """Return the newest migration that this code has."""
    return list(scripts(line))[-1]


def read_versions(execute: Callable[[str], Iterable[Any]]) -> dict[str, str]:
    """Return the newest migration of each line that was applied to a file; nothing for an empty file.

    `execute` runs a query on the file and returns its rows.
    """
    for _ in execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_version'"):
        return {row[0]: row[1] for row in execute("SELECT line, version FROM schema_version")}
    for _ in execute("SELECT 1 FROM sqlite_schema LIMIT 1"):
        return dict.fromkeys(LINES["account"], _UNRELEASED)
    return {}


def check_known(path: Path, line: Kind, version: str | None) -> None:
    """Raise `StoreUnusable` when a file is at a migration that this code does not have; None is before the first."""
    known = scripts(line)
    if version is None or version in known:
        return
    if version < min(known):
        raise StoreUnusable(
            f"{path} was made by a version of Reverie from before its first release, which this one cannot read: export"
            " what it holds with that version (`reverie export`), move it aside, and run `reverie import`"
        )
    raise StoreUnusable(
        f"{path} has schema {version}, newer than {newest_version(line)}, the newest of this version: upgrade Reverie"
    )
