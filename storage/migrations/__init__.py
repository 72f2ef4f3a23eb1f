"""The migrations of store files: one SQL file for each step, applied in the order of their numbers.

A workspace has the tables of `workspace/`. The account's file has these too, because it has memories, and those of
`account/`. The table `schema_version` of a file has its version in each line, and the oldest program that can use the
file: an older program may run beside a newer one if the migration says so. Never edit a released migration.
"""

from __future__ import annotations

import re
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
# The first line of a migration that older programs tolerate: it names the newest migration of the oldest such program.
_OLDEST_PROGRAM: Final = re.compile(r"\A-- oldest program: (\d+)\n")
# The version of a file whose tables are from before the first release.
_UNRELEASED: Final = ""


@cache
def scripts(line: Kind) -> dict[str, Path]:
    """Return the files of a line of migrations by version, oldest first.

    The first is 0100: lower numbers were those of versions that were never released.
    """
    return {path.name.split("_")[0]: path for path in sorted((_FOLDER / line).glob("[0-9]*_*.sql"))}


def newest_version(line: Kind) -> str:
    """Return the version of the newest migration in this code."""
    return list(scripts(line))[-1]


def oldest_program(script: Path) -> str:
    """Return the newest migration of the oldest program that can use a store after this migration: by default, its own.

    A migration without which older programs work as well begins with `-- oldest program: 0100`, for example.
    """
    found = _OLDEST_PROGRAM.match(script.read_text(encoding="utf-8"))
    return found[1] if found else script.name.split("_")[0]


def read_versions(execute: Callable[[str], Iterable[Any]]) -> dict[str, str]:
    """Return the newest migration of each line that was applied to a file; nothing for an empty file.

    `execute` runs a query on the file and returns its rows.
    """
    for _ in execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_version'"):
        return {row[0]: row[1] for row in execute("SELECT line, version FROM schema_version")}
    for _ in execute("SELECT 1 FROM sqlite_schema LIMIT 1"):
        return dict.fromkeys(LINES["account"], _UNRELEASED)
    return {}


def checked_versions(execute: Callable[[str], Iterable[Any]], path: Path, kind: Kind) -> dict[str, str]:
    """Return what `read_versions` does. Raises `StoreUnusable` for a file that this code cannot use."""
    versions = read_versions(execute)
    oldest: dict[str, str] = {}
    if any(versions.values()):
        oldest = {row[0]: row[1] for row in execute("SELECT line, oldest_program FROM schema_version")}
    for line in LINES[kind]:
        check_known(path, line, versions.get(line), oldest.get(line))
    return versions


def check_known(path: Path, line: Kind, version: str | None, oldest: str | None = None) -> None:
    """Raise `StoreUnusable` when a file has a migration that this code neither has nor tolerates.

    A `version` of None is before the first migration; `oldest` is the oldest program that can use the file.
    """
    known = scripts(line)
    if version is None or version in known or (oldest is not None and min(known) <= oldest <= newest_version(line)):
        return
    if version < min(known):
        raise StoreUnusable(
            f"{path} was made by a version of Reverie from before its first release, which this one cannot read: export"
            " what it holds with that version (`reverie export`), move it aside, and run `reverie import`"
        )
    raise StoreUnusable(
        f"{path} has schema {version}, newer than {newest_version(line)}, the newest of this version: upgrade Reverie"
    )
