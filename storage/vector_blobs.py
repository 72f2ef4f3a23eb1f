"""Vectors as they are stored: little-endian float32 numbers, one after the other."""

from __future__ import annotations

from typing import Final

from storage.rows import damaged_row

_FLOAT32_BYTES: Final = 4


def checked_vector(blob: bytes, dim: int) -> bytes:
    """Return a stored vector. Raises `StoreUnusable` unless it has `dim` numbers: the file is damaged."""
    if len(blob) != _FLOAT32_BYTES * dim:
        raise damaged_row("a vector has another dimension than its model")
    return blob
