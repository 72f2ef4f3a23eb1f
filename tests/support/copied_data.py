"""Copies of data folders with the stores in them, wherever these are kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def copy_data(source: Path, target: Path) -> Path:
    """Copy a data folder whose stores are closed to another one, and return that."""
    shutil.copytree(source, target)
    copy_databases(source, target)
    return target


def copy_databases(source: Path, target: Path) -> None:
    """Copy what a database server has of a folder, in the place of what it has of another one."""
    if "TESTS_ON_POSTGRES" in os.environ:
        from support.on_postgres import databases

        databases.copy(source, target)
