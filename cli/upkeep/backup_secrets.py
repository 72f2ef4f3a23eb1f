"""Where the passphrase of encrypted backups comes from: a key file, `REVERIE_BACKUP_PASSPHRASE`, or the terminal."""

from __future__ import annotations

import os
import sys
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Final

import typer

from reverie.errors import Rejected
from worker.backup_secret import secret_in
from worker.settings import PREFIX

VARIABLE: Final = PREFIX + "BACKUP_PASSPHRASE"

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help=f"A file whose content is the passphrase. Default: {VARIABLE}, or a question on the terminal.",
        show_default=False,
    ),
]


class NewSecret(Enum):
    """Whether a folder without backups gets a passphrase."""

    NONE = auto()
    ASK = auto()


def read_secret(dest: Path, key_file: Path | None, new: NewSecret) -> bytes | None:
    """Return the passphrase for the backups in a folder; None for those that are not encrypted.

    Raises `Rejected` if one is needed and none is given, or the key file cannot be read.
    """
    from adapters.backups.repository import read_header

    header = read_header(dest)
    if key_file is not None:
        return secret_in(key_file)
    encrypted = new is NewSecret.ASK if header is None else header.key is not None
    if not encrypted:
        return None
    if given := os.environ.get(VARIABLE):
        return given.encode()
    if not sys.stdin.isatty():
        raise Rejected(f"the backups in {dest} are encrypted: set {VARIABLE}, or use --key-file", field="passphrase")
    asked: str = typer.prompt("Passphrase", hide_input=True, err=True, confirmation_prompt=header is None)
    return asked.encode()
