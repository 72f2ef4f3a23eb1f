"""Settings of the backups that Reverie makes by itself."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings


class BackupSettings(BaseSettings):
    """Where backups are made, how often, and how many are kept."""

    title: ClassVar[str] = "Backups"

    backup_folder: Path | None = Field(
        None,
        description="Folder to which Reverie makes backups by itself. It must exist. Default: it makes none; see"
        " `reverie backup`.",
    )
    backup_interval_hours: float = Field(24.0, ge=0.25, description="Hours between these backups.")
    backup_keep: int = Field(
        30, ge=1, description="How many complete backups are kept in `backup_folder`; older ones are removed."
    )
    backup_key_file: Path | None = Field(
        None, description="File with the passphrase of the backups. With one, a new folder is encrypted."
    )
    backup_passphrase: str | None = Field(
        None, repr=False, description="The passphrase itself, instead of a file; also for `reverie backup`."
    )
