"""Runs a module as a later version does: with the migrations in a folder. The arguments begin with both."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from typing import Final

from storage import migrations as of_files
from storage.postgres import migrations as of_postgres

# What a later version adds to a table that each message is written to; the version before can live with it.
_COLUMN: Final = "ALTER TABLE messages ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';\n"


def release(folder: Path) -> None:
    """Write the migrations of a version after this one into a new folder, for both kinds of database."""
    shutil.copytree(Path(of_files.__file__).parent, folder, ignore=shutil.ignore_patterns("*.py*"))
    newest = of_files.newest_version("workspace")
    later = folder / "workspace" / f"{int(newest) + 1:04}_moods.sql"
    later.write_text(f"-- oldest program: {newest}\n{_COLUMN}")
    shutil.copytree(Path(of_postgres.__file__).parent, folder / "postgres", ignore=shutil.ignore_patterns("*.py*"))
    number = of_postgres.newest_version()
    later = folder / "postgres" / f"{number + 1:04}_moods.sql"
    later.write_text(f"-- oldest program: {number}\n{_COLUMN}")


if __name__ == "__main__":
    folder, module = Path(sys.argv.pop(1)), sys.argv.pop(1)
    of_files._FOLDER, of_postgres._FOLDER = folder, folder / "postgres"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
