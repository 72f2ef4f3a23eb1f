"""A store's new files as copies of one that was migrated: the migrations take most of the time of a small test.

Processes that a test starts, and the tests of the migrations themselves, migrate for real.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pysqlite3
from filelock import FileLock

from storage.engine import Database
from storage.migrate import Kind, migrate, newest_version


def migrator(folder: Path) -> Callable[[Database, Kind], list[str]]:
    """Return a stand-in for `migrate` that keeps its templates in a folder."""

    def migrate_by_copy(database: Database, kind: Kind) -> list[str]:
        template = folder / f"{kind}.db"
        with FileLock(f"{database.path}.migrate.lock", mode=0o600):
            if database.path.stat().st_size == 0 and template.exists():
                _copy(template, database)
                return [newest_version(kind)]
        fresh = database.path.stat().st_size == 0
        applied = migrate(database, kind)
        if fresh and not template.exists():
            _keep(database, template)
        return applied

    return migrate_by_copy


def _copy(template: Path, database: Database) -> None:
    with closing(pysqlite3.connect(template)) as source, database.autocommit() as raw:
        source.backup(raw)


def _keep(database: Database, template: Path) -> None:
    unfinished = template.with_suffix(".part")
    with closing(pysqlite3.connect(unfinished)) as kept, database.autocommit() as raw:
        raw.backup(kept)
    unfinished.rename(template)
